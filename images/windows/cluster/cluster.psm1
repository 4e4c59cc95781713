# Shared functions of the steps that join a node: the Host Networking Service, the bundle medium,
# state and tasks.
# Written for Windows PowerShell 5.1. HNS is called as in microsoft/SDN's hns.psm1, through HNSCall
# of vmcompute.dll, so that the requests are exactly those that the host has prepared.

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1')

$script:State = 'C:\hybridlab\state'
# ---- the Host Networking Service

function Invoke-Hns {
    # Calls HNS and returns its output; an error that it reports is thrown.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [ValidateSet('GET', 'POST', 'DELETE')] [string]$Method,
        [Parameter(Mandatory)] [string]$Path,
        [Parameter(Mandatory)] [AllowEmptyString()] [string]$Request
    )
    if (-not ('Hybridlab.Hns' -as [type])) {
        Add-HnsType
    }
    $text = ''
    [Hybridlab.Hns]::HNSCall($Method, $Path, $Request, [ref]$text)
    if (-not $text) {
        throw "HNS said nothing to $Method $Path"
    }
    $answer = ConvertFrom-Json -InputObject $text
    if (-not (Get-Part -Value $answer -Name 'Success')) {
        throw "HNS refused $Method ${Path}: $(Get-Part -Value $answer -Name 'Error')"
    }
    return Get-Part -Value $answer -Name 'Output'
}

function Add-HnsType {
    # Makes the class Hybridlab.Hns with vmcompute.dll's function. Without Add-Type: that starts a
    # compiler, for seconds, and PowerShell 7 keeps it in memory.
    [CmdletBinding()] param()
    $name = New-Object -TypeName 'System.Reflection.AssemblyName' -ArgumentList 'Hybridlab.Hns'
    $assembly = [System.Reflection.Emit.AssemblyBuilder]::DefineDynamicAssembly($name, 'Run')
    $class = $assembly.DefineDynamicModule($name.Name).DefineType($name.Name, 'Public, Class')
    $asked = [type[]]@([string], [string], [string], [string].MakeByRefType())
    $null = $class.DefinePInvokeMethod('HNSCall', 'vmcompute.dll', 'Public, Static, PinvokeImpl', 'Standard', [void], $asked, 'Winapi', 'Unicode')
    $null = $class.CreateType()
}

function Get-Part {
    # A property of an object; $null if it does not exist.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [AllowNull()] [object]$Value,
        [Parameter(Mandatory)] [string]$Name
    )
    if ($null -eq $Value) {
        return $null
    }
    $found = $Value.PSObject.Properties[$Name]
    if ($null -eq $found) {
        return $null
    }
    return $found.Value
}

function Test-Hns {
    # Whether there is a Host Networking Service; without the feature Containers there is none.
    [CmdletBinding()] [OutputType([bool])] param()
    return [bool](Get-Service -Name 'hns' -ErrorAction SilentlyContinue)
}

function Get-HnsList {
    # All networks or endpoints. Those of kube-proxy have no name; here it is empty.
    [CmdletBinding()] param([Parameter(Mandatory)] [ValidateSet('networks', 'endpoints')] [string]$Kind)
    if (-not (Test-Hns)) {
        return
    }
    foreach ($one in @(Invoke-Hns -Method GET -Path "/$Kind" -Request '' | Where-Object -FilterScript { $_ })) {
        if ($null -eq (Get-Part -Value $one -Name 'Name')) {
            $one | Add-Member -NotePropertyName 'Name' -NotePropertyValue '' -Force
        }
        $one
    }
}

function Get-Prefix {
    # The address prefix of an HNS network; empty if it has no subnet.
    [CmdletBinding()] [OutputType([string])] param([Parameter(Mandatory)] [psobject]$Network)
    $first = @(Get-Part -Value $Network -Name 'Subnets' | Where-Object -FilterScript { $_ }) |
        Select-Object -First 1
    return [string](Get-Part -Value $first -Name 'AddressPrefix')
}

function Get-Isolation {
    # The VSID of an HNS network's first subnet; 0 if it has none.
    [CmdletBinding()] [OutputType([int])] param([Parameter(Mandatory)] [psobject]$Network)
    $first = @(Get-Part -Value $Network -Name 'Subnets' | Where-Object -FilterScript { $_ }) |
        Select-Object -First 1
    foreach ($policy in @(Get-Part -Value $first -Name 'Policies' | Where-Object -FilterScript { $_ })) {
        if ([string](Get-Part -Value $policy -Name 'Type') -eq 'VSID') {
            return [int](Get-Part -Value $policy -Name 'VSID')
        }
    }
    return 0
}

function Find-Network {
    # The HNS network that matches the wanted name, type and prefix; $null if there is none.
    [CmdletBinding()] param([Parameter(Mandatory)] [psobject]$Wanted)
    foreach ($one in @(Get-HnsList -Kind networks)) {
        if ($one.Name -eq $Wanted.Name -and $one.Type -eq $Wanted.Type) {
            if ((Get-Prefix -Network $one) -eq (Get-Prefix -Network $Wanted)) {
                return $one
            }
        }
    }
    return $null
}

function Find-Endpoint {
    # The HNS endpoint of a network that matches the wanted one; $null if there is none.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [psobject]$Wanted,
        [Parameter(Mandatory)] [string]$Network
    )
    foreach ($one in @(Get-HnsList -Kind endpoints)) {
        $address = [string](Get-Part -Value $one -Name 'IPAddress')
        if ($one.Name -eq $Wanted.Name -and $address -eq $Wanted.IPAddress) {
            if ([string]$one.VirtualNetwork -eq $Network) {
                return $one
            }
        }
    }
    return $null
}

function Test-Made {
    # Whether all wanted networks and the endpoint exist, and the host has its address.
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [psobject]$Given)
    $last = $null
    foreach ($text in $Given.networks) {
        $last = Find-Network -Wanted (ConvertFrom-Json -InputObject $text)
        if (-not $last -or -not (Test-OnCard -Network $last -Address $Given.address)) {
            return $false
        }
    }
    if (-not (Get-AddressIndex -Address $Given.address)) {
        return $false
    }
    if (-not $Given.endpoint) {
        return $true
    }
    $wanted = ConvertFrom-Json -InputObject $Given.endpoint
    if (-not (Find-Endpoint -Wanted $wanted -Network ([string]$last.ID))) {
        return $false
    }
    return [bool](Get-AddressIndex -Address $wanted.IPAddress)
}

# ---- addresses

function Get-AddressIndex {
    # Index of the interface that has an address; 0 if there is none.
    [CmdletBinding()] [OutputType([int])] param([Parameter(Mandatory)] [string]$Address)
    $found = @(Get-NetIPAddress -IPAddress $Address -AddressFamily IPv4 -ErrorAction SilentlyContinue)
    if ($found.Count -eq 0) {
        return 0
    }
    return [int]$found[0].InterfaceIndex
}

# ---- the node's adapter, and what HNS makes on it

function Get-Card {
    # Adapter configuration that must survive a virtual switch: saved once, before there is a
    # switch.
    [CmdletBinding()] [OutputType([psobject])] param([Parameter(Mandatory)] [string]$Address)
    $file = Get-StatePath -Name 'card.json'
    if (Test-Path -LiteralPath $file -PathType Leaf) {
        $noted = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($file))
        if ($noted.address -eq $Address) {
            return $noted
        }
    }
    $index = Get-AddressIndex -Address $Address
    if (-not $index) {
        throw "no interface has the address $Address"
    }
    $adapter = Get-NetAdapter -IncludeHidden | Where-Object -FilterScript { $_.InterfaceIndex -eq $index }
    if (([string]$adapter.Name).StartsWith('vEthernet')) {
        throw "$Address is on '$($adapter.Name)' already, and nobody has noted what its card had"
    }
    $ip = @{ InterfaceIndex = $index; AddressFamily = 'IPv4' }
    $read = Get-NetIPInterface @ip
    $routes = @(Get-NetRoute @ip -ErrorAction SilentlyContinue | Where-Object -FilterScript { $_.NextHop -ne '0.0.0.0' })
    $card = [ordered]@{
        name = [string]$adapter.Name
        mac = [string]$adapter.MacAddress
        address = $Address
        length = [int](Get-NetIPAddress -IPAddress $Address -AddressFamily IPv4).PrefixLength
        mtu = [int]$read.NlMtu
        metric = if ("$($read.AutomaticMetric)" -eq 'Enabled') { 0 } else { [int]$read.InterfaceMetric }
        dns = @((Get-DnsClientServerAddress @ip).ServerAddresses | Where-Object -FilterScript { $_ })
        routes = @($routes | ForEach-Object -Process {
                @{ to = [string]$_.DestinationPrefix; via = [string]$_.NextHop }
            })
    }
    $null = Set-TextFile -Path $file -Text (ConvertTo-AsciiJson -Value $card)
    return ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($file))
}

function Get-VirtualAdapter {
    # The virtual adapter that has replaced the physical one, found by MAC: its name is unknown.
    [CmdletBinding()] param([Parameter(Mandatory)] [psobject]$Card)
    Get-NetAdapter -IncludeHidden | Where-Object -FilterScript {
        $_.MacAddress -eq $Card.mac -and ([string]$_.Name).StartsWith('vEthernet')
    }
}

function Wait-Address {
    # Waits for the node's address to come back by itself; returns the interface, or 0.
    [CmdletBinding()] [OutputType([int])] param([Parameter(Mandatory)] [psobject]$Card)
    foreach ($try in 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) {
        $index = Get-AddressIndex -Address $Card.address
        if ($index) {
            return $index
        }
        Write-Log -Message "$($Card.address) is on no interface, look $try of 10"
        Start-Sleep -Seconds 2
    }
    return 0
}

function Restore-Card {
    # Restores the configuration of the node's adapter: address, routes, MTU, DNS servers, metric.
    # Windows usually moves the address to the virtual adapter itself (sig-windows-tools 162). The
    # MTU becomes 1450, whatever it was before (recorded: pjh/SDN, mtu-with-new-hnsnetwork.txt).
    [CmdletBinding()] param([Parameter(Mandatory)] [psobject]$Card)
    $index = Wait-Address -Card $Card
    if (-not $index) {
        $all = @(Get-NetAdapter -IncludeHidden | Where-Object -FilterScript { $_.MacAddress -eq $Card.mac })
        $adapter = @(@(Get-VirtualAdapter -Card $Card) + $all)
        if ($adapter.Count -eq 0) {
            throw "$($Card.address) is lost, and no adapter has the MAC $($Card.mac)"
        }
        $index = [int]$adapter[0].InterfaceIndex
        $null = New-NetIPAddress -InterfaceIndex $index -AddressFamily IPv4 -IPAddress $Card.address -PrefixLength $Card.length
    }
    $ip = @{ InterfaceIndex = $index; AddressFamily = 'IPv4' }
    foreach ($route in $Card.routes) {
        $there = @(Get-NetRoute @ip -DestinationPrefix $route.to -ErrorAction SilentlyContinue)
        if (@($there | Where-Object -FilterScript { $_.NextHop -eq $route.via }).Count -eq 0) {
            $null = New-NetRoute -InterfaceIndex $index -DestinationPrefix $route.to -NextHop $route.via
        }
    }
    if (@($Card.dns).Count -gt 0) {
        Set-DnsClientServerAddress -InterfaceIndex $index -ServerAddresses @($Card.dns)
    }
    if ($Card.metric) {
        Set-NetIPInterface @ip -InterfaceMetric $Card.metric
    }
    if ([int](Get-NetIPInterface @ip).NlMtu -ne $Card.mtu) {
        try {
            Set-NetIPInterface @ip -NlMtuBytes $Card.mtu
        } catch {
            # Whether Windows takes more than 1450 here is unknown; less than the wire's is safe.
            Write-Log -Message "the MTU stays $([int](Get-NetIPInterface @ip).NlMtu), not $($Card.mtu): $_"
        }
    }
}

function Add-Network {
    # The wanted HNS network on the node's own card, created if it does not exist; another of its
    # name is removed. HNS refuses a card that is in a virtual switch already; without a name it
    # takes one that is in none (an author of HNS, Virtualization-Documentation 595), which may be
    # another card. What it makes on another card is removed, and asked for once in the other form.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [psobject]$Wanted,
        [Parameter(Mandatory)] [psobject]$Card
    )
    if (-not (Test-Hns)) {
        throw "there is no Host Networking Service for network '$($Wanted.Name)': the feature Containers is missing"
    }
    $there = Find-Network -Wanted $Wanted
    if ($there -and (Test-OnCard -Network $there -Address $Card.address)) {
        return $there
    }
    foreach ($old in @(Get-HnsList -Kind networks | Where-Object -FilterScript { $_.Name -eq $Wanted.Name })) {
        Remove-Network -Network $old -Card $Card
    }
    $free = -not (Get-VirtualAdapter -Card $Card)
    foreach ($named in $free, (-not $free)) {
        $network = New-Network -Wanted $Wanted -Card $Card -Named $named
        if (Test-OnCard -Network $network -Address $Card.address) {
            return $network
        }
        $management = [string](Get-Part -Value $network -Name 'ManagementIP')
        Write-Log -Message "network '$($Wanted.Name)' is on the card of $management, not of $($Card.address): it is removed"
        Remove-Network -Network $network -Card $Card
    }
    throw "HNS makes network '$($Wanted.Name)' on the card of $management, with the name of the card of $($Card.address) and without"
}

function Test-OnCard {
    # Whether a network is on the card with an address.
    [CmdletBinding()] [OutputType([bool])]
    param(
        [Parameter(Mandatory)] [psobject]$Network,
        [Parameter(Mandatory)] [string]$Address
    )
    return [string](Get-Part -Value $Network -Name 'ManagementIP') -eq $Address
}

function Remove-Network {
    # Removes an HNS network, and gives the node's adapter back what it had.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [psobject]$Network,
        [Parameter(Mandatory)] [psobject]$Card
    )
    $null = Invoke-Hns -Method DELETE -Path "/networks/$($Network.ID)" -Request ''
    Restore-Card -Card $Card
}

function New-Network {
    # Creates an HNS network, with the name of the card or without; returns it once HNS knows its card.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [psobject]$Wanted,
        [Parameter(Mandatory)] [psobject]$Card,
        [Parameter(Mandatory)] [bool]$Named
    )
    $asked = $Wanted | Select-Object -Property *
    if ($Named) {
        $asked | Add-Member -MemberType NoteProperty -Name 'NetworkAdapterName' -Value $Card.name
    }
    $request = ConvertTo-Json -InputObject $asked -Compress -Depth 6
    Write-Log -Message "POST /networks $request"
    $null = Invoke-Hns -Method POST -Path '/networks' -Request $request
    Wait-Until -What "HNS network '$($Wanted.Name)'" -Seconds 60 -Condition {
        $network = Find-Network -Wanted $Wanted
        if ($network -and [string](Get-Part -Value $network -Name 'ManagementIP')) {
            return $true
        }
        return "networks $(@(Get-HnsList -Kind networks | ForEach-Object -Process { $_.Name }) -join ', ')"
    }
    Restore-Card -Card $Card
    return Find-Network -Wanted $Wanted
}

function Clear-EarlierStart {
    # Removes what an earlier start of the machine has left for others to find before flanneld has
    # begun. flannel's plugin takes subnet.env for flanneld's being up; sdnoverlay then makes the
    # network, which a restart had removed, without VSID and card, and flanneld keeps that one
    # ("Found existing HostComputeNetwork"). The pods that it was made for are ended with it: the
    # kubelet makes them anew. Returns true once all of it is gone.
    [CmdletBinding()] [OutputType([bool])]
    param(
        [Parameter(Mandatory)] [AllowEmptyCollection()] [string[]]$Files,
        [Parameter(Mandatory)] [AllowEmptyString()] [string]$Name,
        [Parameter(Mandatory)] [int]$Vsid,
        [Parameter(Mandatory)] [string]$Address,
        [Parameter(Mandatory)] [string]$Runtime
    )
    foreach ($path in $Files) {
        $null = Remove-IfThere -Path $path
    }
    $networks = if ($Name) { @(Get-HnsList -Kind networks) } else { @() }
    foreach ($network in @($networks | Where-Object -FilterScript { $_.Name -eq $Name })) {
        $own = Get-Isolation -Network $network
        if ($own -ne $Vsid -or -not (Test-OnCard -Network $network -Address $Address)) {
            Write-Log -Message "network '$Name' with VSID $own is not the node's: it is removed"
            $null = Invoke-Hns -Method DELETE -Path "/networks/$($network.ID)" -Request ''
            Stop-PodTask -Runtime $Runtime
        }
    }
    return $true
}

function Stop-PodTask {
    # Ends every container of Kubernetes, sandboxes too. Runtime: the path of ctr.exe.
    [CmdletBinding()] param([Parameter(Mandatory)] [string]$Runtime)
    $common = @('--namespace', 'k8s.io', 'tasks')
    $listed = Invoke-Native -Path $Runtime -Arguments ($common + @('list', '--quiet'))
    foreach ($task in @($listed.Output | Where-Object -FilterScript { $_.Trim() })) {
        # one that has ended meanwhile is no error
        $null = Invoke-Native -Path $Runtime -Arguments ($common + @('kill', '--signal', 'SIGKILL', $task.Trim())) -Accept @(0, 1)
    }
}

function Get-OrNewEndpoint {
    # The node's own endpoint, created if it does not exist; another of its name is removed.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [psobject]$Wanted,
        [Parameter(Mandatory)] [string]$Network
    )
    $there = Find-Endpoint -Wanted $Wanted -Network $Network
    if ($there) {
        return $there
    }
    foreach ($old in @(Get-HnsList -Kind endpoints | Where-Object -FilterScript { $_.Name -eq $Wanted.Name })) {
        $null = Invoke-Hns -Method DELETE -Path "/endpoints/$($old.ID)" -Request ''
    }
    $Wanted | Add-Member -MemberType NoteProperty -Name 'VirtualNetwork' -Value $Network -Force
    $request = ConvertTo-Json -InputObject $Wanted -Compress -Depth 6
    Write-Log -Message "POST /endpoints $request"
    $null = Invoke-Hns -Method POST -Path '/endpoints' -Request $request
    return Find-Endpoint -Wanted $Wanted -Network $Network
}

function Add-HostEndpoint {
    # Creates the node's own endpoint, attaches it to the host, and waits for the host's route to
    # it. After a restart there may be one that HNS cannot attach any more ("The object already
    # exists", "The wrong diskette is in the drive"; flannel 1112, 1423): it is recreated once.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [psobject]$Wanted,
        [Parameter(Mandatory)] [string]$Network,
        [Parameter(Mandatory)] [string]$Attachment
    )
    foreach ($last in $false, $true) {
        $there = Get-OrNewEndpoint -Wanted $Wanted -Network $Network
        if (Get-AddressIndex -Address $Wanted.IPAddress) {
            break
        }
        try {
            $null = Invoke-Hns -Method POST -Path "/endpoints/$($there.ID)/attach" -Request $Attachment
            break
        } catch {
            if ("$_" -match 'already attached') {
                break
            }
            if ($last) {
                throw
            }
            Write-Log -Message "endpoint '$($Wanted.Name)' is made anew: $_"
            $null = Invoke-Hns -Method DELETE -Path "/endpoints/$($there.ID)" -Request ''
        }
    }
    Wait-Until -What "the host to have $($Wanted.IPAddress)" -Seconds 60 -Condition {
        if (Get-AddressIndex -Address $Wanted.IPAddress) {
            return $true
        }
        return "endpoint '$($Wanted.Name)' is there, and no interface has its address"
    }
    $index = Get-AddressIndex -Address $Wanted.IPAddress
    Set-NetIPInterface -InterfaceIndex $index -AddressFamily IPv4 -Forwarding Enabled
}

# ---- the bundle medium, tasks

function Find-Medium {
    # The root of the drive with a label ("D:\"); empty if there is none.
    [CmdletBinding()] [OutputType([string])] param([Parameter(Mandatory)] [string]$Label)
    foreach ($volume in @(Get-Volume)) {
        if ([string]$volume.FileSystemLabel -eq $Label -and $volume.DriveLetter) {
            return "$($volume.DriveLetter):\"
        }
    }
    return ''
}

function Get-MediumFile {
    # A file of the medium by its name there; throws if it does not exist.
    [CmdletBinding()] [OutputType([string])]
    param(
        [Parameter(Mandatory)] [string]$Label,
        [Parameter(Mandatory)] [string]$Name
    )
    $root = Find-Medium -Label $Label
    if (-not $root) {
        throw "no drive has the label '$Label': the bundle medium is not in"
    }
    $path = Join-Path -Path $root -ChildPath ($Name.Replace('/', '\'))
    if (-not (Test-Path -LiteralPath $path -PathType Leaf)) {
        throw "the bundle medium in '$root' has no '$Name'"
    }
    return $path
}

function Get-TaskState {
    # The state of one of the lab's tasks; empty if it does not exist.
    [CmdletBinding()] [OutputType([string])] param([Parameter(Mandatory)] [string]$Name)
    $found = @(Get-ScheduledTask -TaskName "hybridlab-$Name" -ErrorAction SilentlyContinue)
    if ($found.Count -eq 0) {
        return ''
    }
    return [string]$found[0].State
}

function Stop-Program {
    # Ends programs and their log wrappers: a stopped task leaves both.
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [AllowEmptyCollection()] [string[]]$Name)
    $found = @(Get-CimInstance -ClassName 'Win32_Process' | Where-Object -FilterScript {
            $line = [string]$_.CommandLine
            $logged = $_.Name -eq 'kube-log-runner.exe'
            $Name -contains $_.Name -or ($logged -and @($Name | Where-Object -FilterScript { $line.Contains($_) }).Count -gt 0)
        })
    $found | ForEach-Object -Process { Stop-Process -Id $_.ProcessId -Force -ErrorAction SilentlyContinue }
    return $found.Count -gt 0
}

function Get-StatePath {
    # Path of a file that keeps state between runs.
    [CmdletBinding()] [OutputType([string])]
    param([Parameter(Mandatory)] [ValidatePattern('^[a-z0-9.-]+$')] [string]$Name)
    $null = New-Item -Path $script:State -ItemType Directory -Force
    return Join-Path -Path $script:State -ChildPath $Name
}

function Invoke-Join {
    # Runs kubeadm join; once more if it has failed before it wrote any of the files, which is in its
    # preflight checks: they give the container runtime 2 s, which a slow machine misses now and then.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [string]$Program,
        [Parameter(Mandatory)] [string]$Document,
        [Parameter(Mandatory)] [string[]]$Written
    )
    $arguments = 'join', '--config', $Document
    try {
        return Invoke-Native -Path $Program -Arguments $arguments
    } catch {
        if (@($Written | Where-Object -FilterScript { Test-Path -LiteralPath $_ }).Count -gt 0) {
            throw
        }
        Write-Log -Message "once more: $_"
    }
    return Invoke-Native -Path $Program -Arguments $arguments
}

function Get-Digest {
    # One digest of texts and of files' contents; a missing file counts as empty.
    [CmdletBinding()] [OutputType([string])]
    param(
        [Parameter(Mandatory)] [AllowEmptyString()] [AllowEmptyCollection()] [string[]]$Text,
        [Parameter(Mandatory)] [AllowEmptyCollection()] [string[]]$File
    )
    $held = @($File | ForEach-Object -Process {
            if (Test-Path -LiteralPath $_ -PathType Leaf) {
                (Get-FileHash -LiteralPath $_ -Algorithm SHA256).Hash
            } else {
                'none'
            }
        })
    $whole = (@($Text) + $held) -join "`n"
    return Get-Sha256 -Bytes ([System.Text.Encoding]::UTF8.GetBytes($whole))
}

Export-ModuleMember -Function '*'

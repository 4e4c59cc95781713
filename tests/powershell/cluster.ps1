<#
.SYNOPSIS
cluster.psm1 against a Windows of functions: they shadow its cmdlets and HNS, and refuse as those do.

.DESCRIPTION
Run by PowerShell 7 on any system, or by Windows PowerShell:
pwsh -NoProfile -File tests/powershell/cluster.ps1
What HNS says, and the MTU of 1450, are recorded: tests/cases/windows/recorded.json.
#>
Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$folder = Join-Path -Path ([System.IO.Path]::GetTempPath()) -ChildPath "hybridlab-$PID"
$null = New-Item -Path $folder -ItemType Directory -Force
$images = Join-Path -Path $PSScriptRoot -ChildPath '../../images/windows'
Copy-Item -Path (Join-Path -Path $images -ChildPath 'hybridlab.psm1'), (Join-Path -Path $images -ChildPath 'cluster/cluster.psm1') -Destination $folder
Import-Module -Name (Join-Path -Path $folder -ChildPath 'cluster.psm1') -Force -DisableNameChecking

function global:New-World {
    $global:World = @{
        switched = $false
        open_card = $false
        address = '10.138.0.5'
        mtu = 1432
        dns = @('10.138.0.1')
        routes = @(@{ DestinationPrefix = '0.0.0.0/0'; NextHop = '10.138.0.1' })
        refuses_mtu = $false
        networks = @()
        endpoints = @()
        attached = @()
        asked = @()
        ran = @()
        join_fails = 0
        attach_says = @()
        services = @('hns')
    }
}
function global:Get-Adapters {
    $all = @([pscustomobject]@{ Name = 'Ethernet'; InterfaceIndex = 6; MacAddress = '42-01-0A-8A-00-05' })
    # a container's: the name that one would expect of the card's
    $all += [pscustomobject]@{ Name = 'vEthernet (Ethernet)'; InterfaceIndex = 17; MacAddress = '00-15-5D-63-74-E3' }
    if ($World.switched) {
        $all += [pscustomobject]@{ Name = 'vEthernet (Ethernet) 2'; InterfaceIndex = 8; MacAddress = '42-01-0A-8A-00-05' }
    }
    return $all
}
function global:Get-Index { if ($World.switched) { 8 } else { 6 } }
function global:Get-NetAdapter {
    param([switch]$IncludeHidden)
    Get-Adapters
}
function global:Get-NetIPAddress {
    param($IPAddress, $AddressFamily, $ErrorAction)
    if ($IPAddress -eq $World.address) { [pscustomobject]@{ InterfaceIndex = Get-Index; PrefixLength = 20 } }
    if ($World.attached -contains $IPAddress) { [pscustomobject]@{ InterfaceIndex = 21; PrefixLength = 24 } }
}
function global:New-NetIPAddress {
    param($InterfaceIndex, $AddressFamily, $IPAddress, $PrefixLength)
    $World.address = $IPAddress
    $World.placed = $InterfaceIndex
}
function global:Get-NetIPInterface {
    param($InterfaceIndex, $AddressFamily)
    [pscustomobject]@{ NlMtu = $World.mtu; AutomaticMetric = 'Enabled'; InterfaceMetric = 15 }
}
function global:Set-NetIPInterface {
    param($InterfaceIndex, $AddressFamily, $NlMtuBytes, $InterfaceMetric, $Forwarding)
    if ($NlMtuBytes) {
        if ($World.refuses_mtu) { throw 'The parameter is incorrect.' }
        $World.mtu = $NlMtuBytes
    }
}
function global:Get-NetRoute {
    param($InterfaceIndex, $AddressFamily, $DestinationPrefix, $ErrorAction)
    $World.routes | ForEach-Object -Process { [pscustomobject]$_ } |
        Where-Object -FilterScript { -not $DestinationPrefix -or $_.DestinationPrefix -eq $DestinationPrefix }
}
function global:New-NetRoute {
    param($InterfaceIndex, $DestinationPrefix, $NextHop)
    $World.routes += @{ DestinationPrefix = $DestinationPrefix
    NextHop = $NextHop }
}
function global:Get-DnsClientServerAddress {
    param($InterfaceIndex, $AddressFamily)
    [pscustomobject]@{ ServerAddresses = $World.dns }
}
function global:Set-DnsClientServerAddress {
    param($InterfaceIndex, $ServerAddresses)
    $World.dns = @($ServerAddresses)
}
function global:Start-Sleep {
    param($Seconds, $Milliseconds)
}
function global:Get-Service {
    param($Name, $ErrorAction)
    if ($World.services -contains $Name) { [pscustomobject]@{ Name = $Name } }
}

& (Get-Module -Name 'cluster') {
    param([string]$Folder)
    $script:StateFolder = $Folder
    function script:Write-Log {
        param($Message)
    }
    function script:Get-StatePath {
        param($Name)
        Join-Path -Path $script:StateFolder -ChildPath $Name
    }
    function script:Invoke-Native {
        param($Path, $Arguments, $Accept)
        $World.ran += "$Path $Arguments"
        if ($World.join_fails -gt 0 -and $Arguments -contains 'join') {
            $World.join_fails -= 1
            throw "'$Path' ended with exit code 1"
        }
        [pscustomobject]@{ Code = 0; Output = @(if ($Arguments -contains 'list') { 'pod' }) }
    }
    function script:Invoke-Hns {
        param($Method, $Path, $Request)
        $World.asked += "$Method $Path $Request"
        if ($Method -eq 'GET') {
            return $World[$Path.TrimStart('/')]
        }
        if ($Method -eq 'DELETE') {
            $World.networks = @($World.networks | Where-Object -FilterScript { "/networks/$($_.ID)" -ne $Path })
            $World.endpoints = @($World.endpoints | Where-Object -FilterScript { "/endpoints/$($_.ID)" -ne $Path })
            return
        }
        if ($Path -like '*/attach') {
            $said, $World.attach_says = $World.attach_says
            if ("$said" -like '*already attached*') { $World.attached += '10.1.0.2' }
            if ($said) { throw "HNS refused POST ${Path}: $said" }
            $World.attached += '10.1.0.2'
            return
        }
        $wanted = ConvertFrom-Json -InputObject $Request
        $wanted | Add-Member -MemberType NoteProperty -Name 'ID' -Value "id$($World.asked.Count)"
        if ($Path -eq '/networks') {
            if ($wanted.PSObject.Properties['NetworkAdapterName']) {
                if ($wanted.NetworkAdapterName -like 'vEthernet*') { throw 'HNS refused: The parameter is incorrect. ' }
                if ($World.switched) { throw 'HNS refused: An adapter was not found. ' }
            }
            # an open card: one that is in no virtual switch
            $other = $World.open_card -and -not $wanted.PSObject.Properties['NetworkAdapterName']
            $management = if ($other) { '198.51.100.5' } else { $World.address }
            $wanted | Add-Member -MemberType NoteProperty -Name 'ManagementIP' -Value $management
            if ($other) {
                $World.networks += $wanted
                return
            }
            $World.switched = $true
            $World.mtu = 1450
            $World.dns = @()
            $World.routes = @()
            $World.networks += $wanted
        } else {
            $World.endpoints += $wanted
        }
    }
} $folder

$script:failures = 0
function Test-That {
    param([string]$What, [scriptblock]$Body)
    New-World
    Remove-Item -Path (Join-Path -Path $folder -ChildPath 'card.json') -ErrorAction SilentlyContinue
    try {
        if ((& $Body) -eq $true) { Write-Output "ok   $What"; return }
        Write-Output "FAIL $What"
    } catch {
        Write-Output "FAIL ${What}: $_ $($_.ScriptStackTrace)"
    }
    $script:failures += 1
}
function New-Wanted {
    <# A network as the product reads it: of JSON. #>
    param([string]$Name, [string]$Prefix)
    $wanted = @{ Type = 'L2Bridge'; Name = $Name; Subnets = @(@{ AddressPrefix = $Prefix; GatewayAddress = '0.0.0.0' }) }
    ConvertFrom-Json -InputObject (ConvertTo-Json -InputObject $wanted -Depth 6)
}
function New-Endpoint { [pscustomobject]@{ Name = 'cbr0'; IPAddress = '10.1.0.2'; GatewayAddress = '0.0.0.0'; Policies = @() } }
function Test-Throws {
    param([scriptblock]$Body, [string]$Like)
    try { $null = & $Body } catch { return "$_" -like $Like }
    return $false
}

Test-That -What 'a network is made on the card of the node, by its name (X1)' -Body {
    $World.open_card = $true
    $card = Get-Card -Address '10.138.0.5'
    $network = Add-Network -Wanted (New-Wanted -Name 'cbr0' -Prefix '10.1.0.0/24') -Card $card
    $posts = @($World.asked | Where-Object -FilterScript { $_ -like 'POST /networks*' })
    $posts.Count -eq 1 -and $posts[0] -like '*"NetworkAdapterName":"Ethernet"*' -and $network.ManagementIP -eq '10.138.0.5'
}
Test-That -What 'a card that is in a switch already is not named (W9)' -Body {
    $card = Get-Card -Address '10.138.0.5'
    $World.switched = $true
    $network = Add-Network -Wanted (New-Wanted -Name 'cbr0' -Prefix '10.1.0.0/24') -Card $card
    $network.ManagementIP -eq '10.138.0.5' -and @($World.asked -like 'POST /networks*NetworkAdapterName*').Count -eq 0
}
Test-That -What 'a network that HNS makes on another card is removed, and is an error (X1)' -Body {
    $World.open_card = $true
    $card = Get-Card -Address '10.138.0.5'
    $World.switched = $true
    $refused = Test-Throws -Body { Add-Network -Wanted (New-Wanted -Name 'cbr0' -Prefix '10.1.0.0/24') -Card $card } -Like '*HNS refused*'
    $refused -and @($World.networks).Count -eq 0
}
Test-That -What 'a network of that name on another card is made anew on the card of the node (X1)' -Body {
    $World.open_card = $true
    $wanted = New-Wanted -Name 'cbr0' -Prefix '10.1.0.0/24'
    $old = New-Wanted -Name 'cbr0' -Prefix '10.1.0.0/24'
    $old | Add-Member -NotePropertyMembers @{ ID = 'old'; ManagementIP = '198.51.100.5' }
    $World.networks = @($old)
    $card = Get-Card -Address '10.138.0.5'
    $network = Add-Network -Wanted $wanted -Card $card
    @($World.networks).Count -eq 1 -and $network.ManagementIP -eq '10.138.0.5'
}
Test-That -What 'the VSID of a network is that of its subnet, and 0 where it has none (X3)' -Body {
    $bridge = New-Wanted -Name 'cbr0' -Prefix '10.1.0.0/24'
    $text = '{"Subnets":[{"AddressPrefix":"10.1.0.0/24","Policies":[{"Type":"VSID","VSID":4096}]}]}'
    (Get-Isolation -Network $bridge) -eq 0 -and (Get-Isolation -Network (ConvertFrom-Json -InputObject $text)) -eq 4096
}
Test-That -What 'what an earlier start left is gone before flanneld: subnet.env, an overlay that is not its own (X3)' -Body {
    $left = Join-Path -Path $folder -ChildPath 'subnet.env'
    $null = New-Item -Path $left -ItemType File -Force
    $own = '{"ID":"own","Name":"flannel.4096","ManagementIP":"10.138.0.5","Subnets":[{"Policies":[{"Type":"VSID","VSID":4096}]}]}'
    $bare = '{"ID":"bare","Name":"flannel.4096","ManagementIP":"10.138.0.5","Subnets":[{"Policies":[]}]}'
    $card = '{"ID":"card","Name":"flannel.4096","ManagementIP":"198.51.100.5","Subnets":[{"Policies":[{"Type":"VSID","VSID":4096}]}]}'
    $World.networks = @($own, $bare, $card | ForEach-Object -Process { ConvertFrom-Json -InputObject $_ })
    $cleared = Clear-EarlierStart -Files @($left) -Name 'flannel.4096' -Vsid 4096 -Address '10.138.0.5' -Runtime 'ctr.exe'
    $ended = @($World.ran | Where-Object -FilterScript { $_ -like '*kill --signal SIGKILL pod' }).Count
    $ended -eq 2 -and $cleared -and -not (Test-Path -Path $left) -and (@($World.networks | ForEach-Object -Process { $_.ID }) -join ',') -eq 'own'
}
Test-That -What 'what an earlier start left is cleared once, before flanneld starts (X3)' -Body {
    $place = Join-Path -Path $folder -ChildPath 'keep'
    $null = New-Item -Path $place -ItemType Directory
    $calls = Join-Path -Path $place -ChildPath 'calls'
    Copy-Item -Path (Join-Path -Path $images -ChildPath 'hybridlab.psm1'), (Join-Path -Path $images -ChildPath 'cluster/node-keep.ps1') -Destination $place
    Set-Content -Path (Join-Path -Path $place -ChildPath 'flanneld.ps1') -Value "Add-Content -Path '$calls' -Value 'start'"
    Set-Content -Path (Join-Path -Path $place -ChildPath 'cluster.psm1') -Value @"
function Clear-EarlierStart { Add-Content -Path '$calls' -Value "clear `$args"; `$true }
function Get-Card { [pscustomobject]@{} }
function Get-AddressIndex { 6 }
function Restore-Card { if (@(Get-Content -Path '$calls') -contains 'start') { [Environment]::Exit(0) } }
"@
    $program = (Get-Process -Id $PID).Path
    $given = @{
        address = '10.138.0.5'; program = $program; environment = @(); pause_seconds = 0
        arguments = @('-NoProfile', '-File', (Join-Path -Path $place -ChildPath 'flanneld.ps1'))
        stale = @('subnet.env'); ends = @('flanneld.exe'); network = 'flannel.4096'; vsid = 4096; runtime = 'ctr.exe'
    }
    $settings = Join-Path -Path $place -ChildPath 'given.json'
    Set-Content -Path $settings -Value (ConvertTo-Json -InputObject $given)
    Push-Location -Path $place
    try { $null = & $program -NoProfile -File (Join-Path -Path $place -ChildPath 'node-keep.ps1') -Settings $settings } finally { Pop-Location }
    $lines = @(Get-Content -Path $calls)
    $lines.Count -eq 2 -and $lines[0] -like 'clear *flannel.4096*' -and $lines[1] -eq 'start'
}
Test-That -What 'without a Host Networking Service no network is asked for' -Body {
    $card = Get-Card -Address '10.138.0.5'
    $World.services = @()
    $refused = Test-Throws -Body { Add-Network -Wanted (New-Wanted -Name 'cbr0' -Prefix '10.1.0.0/24') -Card $card } -Like '*no Host Networking Service*'
    $refused -and @($World.asked).Count -eq 0
}
Test-That -What 'MTU, DNS servers and routes are given back after the switch is made (W11)' -Body {
    $card = Get-Card -Address '10.138.0.5'
    $null = Add-Network -Wanted (New-Wanted -Name 'cbr0' -Prefix '10.1.0.0/24') -Card $card
    $World.mtu -eq 1432 -and $World.dns[0] -eq '10.138.0.1' -and $World.routes[0].NextHop -eq '10.138.0.1'
}
Test-That -What 'an MTU that is refused stops nothing (W11)' -Body {
    $card = Get-Card -Address '10.138.0.5'
    $World.refuses_mtu = $true
    $null = Add-Network -Wanted (New-Wanted -Name 'cbr0' -Prefix '10.1.0.0/24') -Card $card
    $World.mtu -eq 1450
}
Test-That -What 'an address that is lost goes to the adapter with the MAC of the card (W12)' -Body {
    $card = Get-Card -Address '10.138.0.5'
    $World.switched = $true
    $World.address = ''
    Restore-Card -Card $card
    $World.placed -eq 8
}
Test-That -What 'what a card had is noted before it is in a switch, and never after' -Body {
    $World.switched = $true
    Test-Throws -Body { Get-Card -Address '10.138.0.5' } -Like '*nobody has noted*'
}
Test-That -What 'an endpoint that is attached already is taken (W13)' -Body {
    $World.attach_says = @('This endpoint is already attached to the switch. ')
    Add-HostEndpoint -Wanted (New-Endpoint) -Network 'n' -Attachment '{}'
    @($World.asked | Where-Object -FilterScript { $_ -like 'POST /endpoints {*' }).Count -eq 1
}
Test-That -What 'an endpoint that cannot be attached is made anew, once (W13)' -Body {
    $World.attach_says = @('The wrong diskette is in the drive. ')
    Add-HostEndpoint -Wanted (New-Endpoint) -Network 'n' -Attachment '{}'
    @($World.asked | Where-Object -FilterScript { $_ -like 'POST /endpoints {*' }).Count -eq 2 -and $World.attached.Count -eq 1
}
Test-That -What 'an endpoint that is refused twice is an error (W13)' -Body {
    $World.attach_says = @('The object already exists', 'The object already exists')
    Test-Throws -Body { Add-HostEndpoint -Wanted (New-Endpoint) -Network 'n' -Attachment '{}' } -Like '*already exists*'
}
Test-That -What 'an endpoint without a name, as kube-proxy makes one, is found by no name and is no error' -Body {
    $World.endpoints = @([pscustomobject]@{ ID = 'remote'; IPAddress = '10.244.0.5' })
    $named = @(Get-HnsList -Kind endpoints | Where-Object -FilterScript { $_.Name -eq 'cbr0' })
    $all = @(Get-HnsList -Kind endpoints)
    $named.Count -eq 0 -and $all.Count -eq 1 -and $all[0].Name -eq '' -and $all[0].ID -eq 'remote'
}
Test-That -What 'a program runs on when a look at the adapters fails: no second one is started' -Body {
    $World.looks = 0
    $tokens, $faults = $null, $null
    $script = Join-Path -Path $images -ChildPath 'cluster/node-keep.ps1'
    $tree = [System.Management.Automation.Language.Parser]::ParseFile($script, [ref]$tokens, [ref]$faults)
    $function = $tree.Find({ param($node) $node -is [System.Management.Automation.Language.FunctionDefinitionAst] }, $true)
    function Get-AddressIndex {
        param($Address)
        $World.looks += 1
        if ($World.looks -eq 2) { throw 'ip ended with 1' } # $Address is that of the node
        return 6
    }
    function Start-Process {
        param($FilePath, $ArgumentList, [switch]$NoNewWindow, [switch]$PassThru)
        $World.ran += $FilePath
        $process = [pscustomobject]@{}
        $process | Add-Member -MemberType ScriptMethod -Name WaitForExit -Value { $World.looks -ge 3 }
        return $process
    }
    function Write-Log { param($Message) $World.asked += $Message }
    $given = [pscustomobject]@{
        address = '10.138.0.5'
        program = 'flanneld.exe'
        arguments = @('-v')
        stale = @()
    }
    . ([scriptblock]::Create($function.Extent.Text))
    Invoke-Program -Given $given -Card ([pscustomobject]@{})
    $World.looks -eq 3 -and @($World.ran).Count -eq 1 -and $World.asked[0] -like '*ip ended with 1'
}
Test-That -What 'a program that has moved the address of the node is ended, once its files are there (X9)' -Body {
    $tokens, $faults = $null, $null
    $script = Join-Path -Path $images -ChildPath 'cluster/node-keep.ps1'
    $tree = [System.Management.Automation.Language.Parser]::ParseFile($script, [ref]$tokens, [ref]$faults)
    $function = $tree.Find({ param($node) $node -is [System.Management.Automation.Language.FunctionDefinitionAst] }, $true)
    $file = Join-Path -Path $folder -ChildPath 'subnet.env'
    $World.waits = 0
    $World.ended = @()
    function Get-AddressIndex { param($Address) if ($World.waits -ge 2) { 8 } else { 6 } }
    function Restore-Card { param($Card) }
    function Write-Log { param($Message) }
    function Stop-Program { param($Name) $World.ended += "$Name at $($World.waits)" }
    function Start-Process {
        param($FilePath, $ArgumentList, [switch]$NoNewWindow, [switch]$PassThru)
        $process = [pscustomobject]@{}
        $process | Add-Member -MemberType ScriptMethod -Name WaitForExit -Value {
            $World.waits += 1
            if ($World.waits -eq 4) { $null = New-Item -Path $World.file -ItemType File }
            return $World.waits -ge 7
        }
        return $process
    }
    $World.file = $file
    $given = [pscustomobject]@{ address = '10.138.0.5'; program = 'flanneld.exe'; arguments = @('-v'); stale = @($file); ends = @('flanneld.exe') }
    . ([scriptblock]::Create($function.Extent.Text))
    Invoke-Program -Given $given -Card ([pscustomobject]@{})
    Remove-Item -Path $file
    "$($World.ended)" -eq 'flanneld.exe at 4'
}
Test-That -What 'kubeadm is asked once more if it fails before it has written anything, and only once (X12)' -Body {
    $files = Join-Path -Path $folder -ChildPath 'bootstrap.conf'
    $join = { Invoke-Join -Program 'kubeadm' -Document 'join.json' -Written $files }
    $World.join_fails = 1
    $late = (& $join).Code -eq 0 -and @($World.ran).Count -eq 2
    $World.join_fails = 9
    $refused = (Test-Throws -Body $join -Like '*exit code 1') -and @($World.ran).Count -eq 4
    $null = New-Item -Path $files -ItemType File
    $begun = (Test-Throws -Body $join -Like '*exit code 1') -and @($World.ran).Count -eq 5
    Remove-Item -Path $files
    $late -and $refused -and $begun
}

Remove-Item -Path $folder -Recurse -Force
exit [int]($script:failures -gt 0)

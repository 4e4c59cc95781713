# NetTCPIP on a Wine node: the container's addresses, routes and interfaces, by Linux's ip.
# Windows: cmdlets over CIM. PowerShell on Wine has no CIM. Names, objects and errors are Windows'.

Set-StrictMode -Version 3.0

function Read-Ip {
    # Linux's answer in JSON, as objects, without what HNS has made: on Windows the inside of a
    # virtual switch is seen at HNS alone. The node's own endpoint of a bridge is shown.
    [CmdletBinding()] param([Parameter(Mandatory)] [string[]]$Words)
    $text = (Invoke-Linux -Program 'ip' -Words (@('-json', '-details') + $Words)) -join "`n"
    if ($text.Trim()) {
        $inside = '^(vxlan[0-9]+|h[0-9a-f]{12})$'
        if (Test-Overlay) {
            $inside = '^(vxlan[0-9]+|h[0-9a-f]{12}|hns)$'
        }
        ConvertFrom-Json -InputObject $text | Where-Object -FilterScript {
            $name = Get-Field -Value $_ -Name 'ifname'
            if (-not $name) { $name = Get-Field -Value $_ -Name 'dev' }
            "$name" -cnotmatch $inside
        }
    }
}

function Test-Overlay {
    # Whether HNS has an overlay, whose gateway is no address of the node.
    [CmdletBinding()] [OutputType([bool])] param()
    return @([System.Net.NetworkInformation.NetworkInterface]::GetAllNetworkInterfaces() |
            Where-Object -FilterScript { $_.Name -cmatch '^vxlan[0-9]+$' }).Count -gt 0
}

function Get-Field {
    # A field of an object; $null if it has none.
    [CmdletBinding()] param([Parameter(Mandatory)] [psobject]$Value, [Parameter(Mandatory)] [string]$Name)
    $field = $Value.PSObject.Properties[$Name]
    if ($field) { return $field.Value }
    return $null
}

function Write-Absence {
    # Windows' error of a query without an answer.
    [CmdletBinding()] param([Parameter(Mandatory)] [string]$What)
    $problem = New-Object -TypeName 'System.Exception' -ArgumentList "No matching $What objects found by the query."
    $record = New-Object -TypeName 'System.Management.Automation.ErrorRecord' -ArgumentList @(
        $problem, 'CmdletizationQuery_NotFound', 'ObjectNotFound', $What)
    return $record
}

function Get-NetIPAddress {
    [CmdletBinding()]
    param(
        [Parameter(Position = 0)] [string[]]$IPAddress,
        [Alias('ifIndex')] [int[]]$InterfaceIndex,
        [string[]]$InterfaceAlias,
        [string]$AddressFamily
    )
    $all = @(Read-Ip -Words 'address', 'show' | ForEach-Object -Process {
            $link = $_
            @(Get-Field -Value $link -Name 'addr_info') | Where-Object -FilterScript { $_ } | ForEach-Object -Process {
                [pscustomobject]@{
                    IPAddress = [string]$_.local
                    PrefixLength = [int]$_.prefixlen
                    InterfaceIndex = [int]$link.ifindex
                    InterfaceAlias = [string]$link.ifname
                    AddressFamily = if ($_.family -eq 'inet') { 'IPv4' } else { 'IPv6' }
                    PrefixOrigin = 'Manual'
                    SuffixOrigin = 'Manual'
                    AddressState = 'Preferred'
                }
            }
        })
    $matching = @($all | Where-Object -FilterScript {
            (-not $IPAddress -or $IPAddress -contains $_.IPAddress) -and
            (-not $InterfaceIndex -or $InterfaceIndex -contains $_.InterfaceIndex) -and
            (-not $InterfaceAlias -or $InterfaceAlias -contains $_.InterfaceAlias) -and
            (-not $AddressFamily -or $AddressFamily -eq $_.AddressFamily)
        })
    if ($matching.Count -eq 0) {
        $PSCmdlet.WriteError((Write-Absence -What 'MSFT_NetIPAddress'))
    }
    $matching
}

function New-NetIPAddress {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory, Position = 0)] [string]$IPAddress,
        [Alias('ifIndex')] [int]$InterfaceIndex,
        [string]$InterfaceAlias,
        [int]$PrefixLength = 32,
        [string]$AddressFamily,
        [string]$DefaultGateway
    )
    $name = Get-LinkName -Index $InterfaceIndex -Alias $InterfaceAlias
    $null = Invoke-Linux -Program 'ip' -Words 'address', 'add', "$IPAddress/$PrefixLength", 'dev', $name
    Update-Hns
    if ($DefaultGateway) {
        $null = Invoke-Linux -Program 'ip' -Words 'route', 'replace', 'default', 'via', $DefaultGateway, 'dev', $name
    }
    Get-NetIPAddress -IPAddress $IPAddress
}

function Get-LinkName {
    [CmdletBinding()] [OutputType([string])] param([int]$Index, [string]$Alias)
    if ($Alias) { return $Alias }
    foreach ($link in @(Read-Ip -Words 'link', 'show')) {
        if ([int]$link.ifindex -eq $Index) { return [string]$link.ifname }
    }
    throw "there is no interface with the index $Index"
}

function Get-NetRoute {
    [CmdletBinding()]
    param(
        [Parameter(Position = 0)] [string[]]$DestinationPrefix,
        [Alias('ifIndex')] [int[]]$InterfaceIndex,
        [string[]]$NextHop,
        [string]$AddressFamily
    )
    $indexes = @{}
    foreach ($link in @(Read-Ip -Words 'link', 'show')) { $indexes[[string]$link.ifname] = [int]$link.ifindex }
    $all = @(Read-Ip -Words '-4', 'route', 'show' | Where-Object -FilterScript { Get-Field -Value $_ -Name 'dev' } | ForEach-Object -Process {
            $prefix = [string]$_.dst
            if ($prefix -eq 'default') { $prefix = '0.0.0.0/0' }
            if ($prefix -notmatch '/') { $prefix = "$prefix/32" }
            $via = [string](Get-Field -Value $_ -Name 'gateway')
            [pscustomobject]@{
                DestinationPrefix = $prefix
                NextHop = if ($via) { $via } else { '0.0.0.0' }
                InterfaceIndex = $indexes[[string]$_.dev]
                ifIndex = $indexes[[string]$_.dev]
                InterfaceAlias = [string]$_.dev
                RouteMetric = [int](Get-Field -Value $_ -Name 'metric')
                InterfaceMetric = 25
                AddressFamily = 'IPv4'
                Protocol = 'NetMgmt'
                Store = 'ActiveStore'
            }
        })
    $matching = @($all | Where-Object -FilterScript {
            (-not $DestinationPrefix -or $DestinationPrefix -contains $_.DestinationPrefix) -and
            (-not $InterfaceIndex -or $InterfaceIndex -contains $_.InterfaceIndex) -and
            (-not $NextHop -or $NextHop -contains $_.NextHop) -and
            (-not $AddressFamily -or $AddressFamily -eq 'IPv4')
        })
    if ($matching.Count -eq 0) {
        $PSCmdlet.WriteError((Write-Absence -What 'MSFT_NetRoute'))
    }
    $matching
}

function New-NetRoute {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory, Position = 0)] [string]$DestinationPrefix,
        [Alias('ifIndex')] [int]$InterfaceIndex,
        [string]$InterfaceAlias,
        [string]$NextHop = '0.0.0.0',
        [int]$RouteMetric = 256,
        [string]$AddressFamily
    )
    $name = Get-LinkName -Index $InterfaceIndex -Alias $InterfaceAlias
    # Windows takes the interface's word that the next hop is on its link
    $way = if ($NextHop -eq '0.0.0.0') { @('dev', $name) } else { @('via', $NextHop, 'dev', $name, 'onlink') }
    $null = Invoke-Linux -Program 'ip' -Words (@('route', 'add', $DestinationPrefix) + $way)
    Get-NetRoute -DestinationPrefix $DestinationPrefix -InterfaceIndex $InterfaceIndex
}

function Remove-NetRoute {
    [CmdletBinding(SupportsShouldProcess)]
    param(
        [Parameter(ValueFromPipeline)] [psobject]$InputObject,
        [string]$DestinationPrefix
    )
    process {
        if ($InputObject) { $DestinationPrefix = $InputObject.DestinationPrefix }
        $words = @('route', 'delete', $DestinationPrefix)
        if ($InputObject) { $words += @('dev', $InputObject.InterfaceAlias) }
        $null = Invoke-Linux -Program 'ip' -Words $words
    }
}

function Get-NetIPInterface {
    [CmdletBinding()]
    param([Alias('ifIndex')] [int[]]$InterfaceIndex, [string[]]$InterfaceAlias, [string]$AddressFamily)
    Read-Ip -Words 'link', 'show' | Where-Object -FilterScript {
        (-not $InterfaceIndex -or $InterfaceIndex -contains [int]$_.ifindex) -and
        (-not $InterfaceAlias -or $InterfaceAlias -contains [string]$_.ifname)
    } | ForEach-Object -Process {
        [pscustomobject]@{
            InterfaceIndex = [int]$_.ifindex
            ifIndex = [int]$_.ifindex
            InterfaceAlias = [string]$_.ifname
            AddressFamily = 'IPv4'
            NlMtu = [int]$_.mtu
            InterfaceMetric = 25
            AutomaticMetric = 'Enabled'
            Dhcp = 'Disabled'
            Forwarding = 'Enabled'
            WeakHostSend = 'Disabled'
            WeakHostReceive = 'Disabled'
            ConnectionState = 'Connected'
        }
    }
}

function Set-NetIPInterface {
    # The MTU alone: HNS' daemon switches forwarding on, and Linux has no metric of interfaces.
    [CmdletBinding()]
    param(
        [Alias('ifIndex')] [int]$InterfaceIndex,
        [string]$InterfaceAlias,
        [string]$AddressFamily,
        [int]$NlMtuBytes,
        [int]$InterfaceMetric,
        [string]$Forwarding
    )
    if ($NlMtuBytes) {
        $name = Get-LinkName -Index $InterfaceIndex -Alias $InterfaceAlias
        $null = Invoke-Linux -Program 'ip' -Words 'link', 'set', $name, 'mtu', "$NlMtuBytes"
    }
}

function Get-NetNeighbor {
    [CmdletBinding()] param([string]$AddressFamily, [Alias('ifIndex')] [int[]]$InterfaceIndex)
    $indexes = @{}
    foreach ($link in @(Read-Ip -Words 'link', 'show')) { $indexes[[string]$link.ifname] = [int]$link.ifindex }
    Read-Ip -Words '-4', 'neighbour', 'show' | Where-Object -FilterScript { Get-Field -Value $_ -Name 'lladdr' } | ForEach-Object -Process {
        [pscustomobject]@{
            IPAddress = [string]$_.dst
            LinkLayerAddress = ([string]$_.lladdr).Replace(':', '-').ToUpperInvariant()
            InterfaceIndex = $indexes[[string]$_.dev]
            InterfaceAlias = [string]$_.dev
            State = if (@($_.state) -contains 'PERMANENT') { 'Permanent' } else { 'Reachable' }
            AddressFamily = 'IPv4'
        }
    }
}

function Get-NetTCPConnection {
    [CmdletBinding()] param([string[]]$State)
    [System.Net.NetworkInformation.IPGlobalProperties]::GetIPGlobalProperties().GetActiveTcpListeners() | ForEach-Object -Process {
        [pscustomobject]@{ LocalAddress = [string]$_.Address; LocalPort = [int]$_.Port; State = 'Listen'; OwningProcess = 0 }
    }
}

function Get-NetUDPEndpoint {
    [CmdletBinding()] param()
    [System.Net.NetworkInformation.IPGlobalProperties]::GetIPGlobalProperties().GetActiveUdpListeners() | ForEach-Object -Process {
        [pscustomobject]@{ LocalAddress = [string]$_.Address; LocalPort = [int]$_.Port; OwningProcess = 0 }
    }
}

Export-ModuleMember -Function Get-NetIPAddress, New-NetIPAddress, Get-NetRoute, New-NetRoute, Remove-NetRoute,
    Get-NetIPInterface, Set-NetIPInterface, Get-NetNeighbor, Get-NetTCPConnection, Get-NetUDPEndpoint, Read-Ip

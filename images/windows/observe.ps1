# Reports the node's current network and its services.
# Changes nothing. Each fact is a list of JSON texts, one per object, because a step's result is six
# levels deep and HNS is deeper. A query that fails is listed in "absent" with the reason. Facts:
# version, networks, endpoints, policies, adapters, interfaces, addresses, routes, neighbours,
# listening, services, rules, statistics, proxies, plugins, logs, absent.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    services = 'string[]'
    tasks = 'string[]'
    logs = 'string'
    lines = 'int'
    ports = 'string[]'
}

$current = 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion'

function Get-Answer {
    # The results of a query as JSON texts; if it fails, the reason is added to Absent.
    [CmdletBinding()] [OutputType([string[]])]
    param(
        [Parameter(Mandatory)] [string]$Name,
        [Parameter(Mandatory)] [hashtable]$Absent,
        [Parameter(Mandatory)] [scriptblock]$Question
    )
    try {
        return @(& $Question | Where-Object -FilterScript { $_ } | ForEach-Object -Process {
                ConvertTo-Json -InputObject $_ -Compress -Depth 8
            })
    } catch {
        $Absent[$Name] = "$_"
        return @()
    }
}

function Get-Network {
    [CmdletBinding()] [OutputType([psobject])] param()
    $keys = 'ID', 'Name', 'Type', 'ManagementIP', 'NetworkAdapterName', 'DrMacAddress', 'Subnets', 'Policies'
    return @(Get-HnsNetwork | Where-Object -FilterScript { $_ } | Select-Object -Property $keys)
}

function Get-Endpoint {
    [CmdletBinding()] [OutputType([psobject])] param()
    $keys = @(
        'ID', 'Name', 'VirtualNetworkName', 'IPAddress', 'PrefixLength', 'MacAddress', 'GatewayAddress',
        'DNSServerList', 'DNSSuffix', 'IsRemoteEndpoint', 'State', 'SharedContainers', 'Policies')
    return @(Get-HnsEndpoint | Where-Object -FilterScript { $_ } | Select-Object -Property $keys)
}

function Get-Balancer {
    [CmdletBinding()] [OutputType([psobject])] param()
    $keys = 'ID', 'References', 'Policies'
    return @(Get-HnsPolicyList | Where-Object -FilterScript { $_ } | Select-Object -Property $keys)
}

function Get-Adapter {
    [CmdletBinding()] [OutputType([psobject])] param()
    return Get-NetAdapter -IncludeHidden | ForEach-Object -Process {
        [ordered]@{
            name = $_.Name
            index = $_.InterfaceIndex
            mac = $_.MacAddress
            status = "$($_.Status)"
        }
    }
}

function Get-IpInterface {
    [CmdletBinding()] [OutputType([psobject])] param()
    return Get-NetIPInterface -AddressFamily 'IPv4' | ForEach-Object -Process {
        [ordered]@{
            name = $_.InterfaceAlias
            index = $_.InterfaceIndex
            mtu = $_.NlMtu
            forwarding = "$($_.Forwarding)"
            state = "$($_.ConnectionState)"
            metric = $_.InterfaceMetric
        }
    }
}

function Get-Address {
    [CmdletBinding()] [OutputType([psobject])] param()
    return Get-NetIPAddress -AddressFamily 'IPv4' | ForEach-Object -Process {
        [ordered]@{ name = $_.InterfaceAlias; address = $_.IPAddress; length = $_.PrefixLength }
    }
}

function Get-Route {
    [CmdletBinding()] [OutputType([psobject])] param()
    return Get-NetRoute -AddressFamily 'IPv4' | ForEach-Object -Process {
        [ordered]@{
            destination = $_.DestinationPrefix
            via = $_.NextHop
            name = $_.InterfaceAlias
            metric = $_.RouteMetric
        }
    }
}

function Get-Neighbour {
    [CmdletBinding()] [OutputType([psobject])] param()
    return Get-NetNeighbor -AddressFamily 'IPv4' | ForEach-Object -Process {
        [ordered]@{
            address = $_.IPAddress
            mac = $_.LinkLayerAddress
            name = $_.InterfaceAlias
            state = "$($_.State)"
        }
    }
}

function Get-Listener {
    [CmdletBinding()] [OutputType([psobject])] param()
    Get-NetTCPConnection -State 'Listen' | ForEach-Object -Process {
        [ordered]@{ protocol = 'tcp'; address = $_.LocalAddress; port = $_.LocalPort }
    }
    Get-NetUDPEndpoint | ForEach-Object -Process {
        [ordered]@{ protocol = 'udp'; address = $_.LocalAddress; port = $_.LocalPort }
    }
}

function Get-NodeService {
    [CmdletBinding()] [OutputType([psobject])]
    param(
        [Parameter(Mandatory)] [string[]]$Names,
        [Parameter(Mandatory)] [AllowEmptyCollection()] [string[]]$Tasks
    )
    Get-Service -Name $Names -ErrorAction SilentlyContinue | ForEach-Object -Process {
        [ordered]@{ name = $_.Name; state = "$($_.Status)"; start = "$($_.StartType)" }
    }
    foreach ($name in $Tasks) {
        Get-ScheduledTask -TaskName "hybridlab-$name" -ErrorAction SilentlyContinue | ForEach-Object -Process {
            [ordered]@{ name = $name; state = "$($_.State)"; start = 'with the machine' }
        }
    }
}

function Get-Rule {
    # The firewall's inbound rules for one of these ports.
    [CmdletBinding()] [OutputType([psobject])] param([Parameter(Mandatory)] [string[]]$Ports)
    $filters = @(Get-NetFirewallPortFilter | Where-Object -FilterScript {
            @($_.LocalPort | Where-Object -FilterScript { $Ports -contains "$_" }).Count -gt 0
        })
    foreach ($filter in $filters) {
        foreach ($rule in @(Get-NetFirewallRule -AssociatedNetFirewallPortFilter $filter)) {
            if ("$($rule.Direction)" -eq 'Inbound') {
                [ordered]@{
                    name = $rule.DisplayName
                    protocol = "$($filter.Protocol)"
                    ports = @($filter.LocalPort | ForEach-Object -Process { "$_" })
                    enabled = "$($rule.Enabled)"
                    action = "$($rule.Action)"
                }
            }
        }
    }
}

function Get-Statistic {
    [CmdletBinding()] [OutputType([psobject])] param()
    return Get-NetAdapterStatistics | ForEach-Object -Process {
        [ordered]@{
            name = $_.Name
            received = $_.ReceivedUnicastPackets
            sent = $_.SentUnicastPackets
            received_discarded = $_.ReceivedDiscardedPackets
            received_errors = $_.ReceivedPacketErrors
            sent_discarded = $_.OutboundDiscardedPackets
            sent_errors = $_.OutboundPacketErrors
        }
    }
}

function Get-LogEnd {
    # The last lines of each service's log, FOLDER\SERVICE\SERVICE.log; none without a log.
    [CmdletBinding()] [OutputType([psobject])]
    param(
        [Parameter(Mandatory)] [string[]]$Names,
        [Parameter(Mandatory)] [string]$Folder,
        [Parameter(Mandatory)] [int]$Lines
    )
    foreach ($name in $Names) {
        $path = Join-Path -Path (Join-Path -Path $Folder -ChildPath $name) -ChildPath "$name.log"
        if (Test-Path -LiteralPath $path -PathType Leaf) {
            $last = @(Get-Content -LiteralPath $path -Tail $Lines | ForEach-Object -Process { "$_" })
            [ordered]@{ name = $name; lines = $last }
        }
    }
}

function Get-Proxy {
    [CmdletBinding()] [OutputType([psobject])] param()
    foreach ($name in 'HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY') {
        $value = [System.Environment]::GetEnvironmentVariable($name, 'Machine')
        if ($value) {
            [ordered]@{ name = $name; value = $value }
        }
    }
    $shown = Invoke-Native -Path "$env:SystemRoot\System32\netsh.exe" -Arguments @('winhttp', 'show', 'proxy')
    [ordered]@{ name = 'winhttp'; value = (@($shown.Output) -join ' ').Trim() }
}

function Get-Plugin {
    # The CNI configuration that containerd reads: the first of its files by name.
    [CmdletBinding()] [OutputType([psobject])] param()
    $folder = 'C:\etc\cni\net.d'
    if (Test-Path -LiteralPath $folder -PathType Container) {
        Get-ChildItem -LiteralPath $folder -File |
            Where-Object -FilterScript { $_.Extension -in '.conf', '.conflist', '.json' } |
            Sort-Object -Property Name | Select-Object -First 1 | ForEach-Object -Process {
                $text = (@(Get-Content -LiteralPath $_.FullName) -join "`n")
                [ordered]@{ path = $_.FullName; text = $text }
            }
    }
}

exit (Invoke-Step -Name 'observe' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $absent = @{}
        $read = Get-ItemProperty -LiteralPath $current
        $Result.Facts = @{
            version = "$($read.CurrentBuildNumber).$($read.UBR)"
            networks = @(Get-Answer -Name 'networks' -Absent $absent -Question { Get-Network })
            endpoints = @(Get-Answer -Name 'endpoints' -Absent $absent -Question { Get-Endpoint })
            policies = @(Get-Answer -Name 'policies' -Absent $absent -Question { Get-Balancer })
            adapters = @(Get-Answer -Name 'adapters' -Absent $absent -Question { Get-Adapter })
            interfaces = @(Get-Answer -Name 'interfaces' -Absent $absent -Question { Get-IpInterface })
            addresses = @(Get-Answer -Name 'addresses' -Absent $absent -Question { Get-Address })
            routes = @(Get-Answer -Name 'routes' -Absent $absent -Question { Get-Route })
            neighbours = @(Get-Answer -Name 'neighbours' -Absent $absent -Question { Get-Neighbour })
            listening = @(Get-Answer -Name 'listening' -Absent $absent -Question { Get-Listener })
            services = @(Get-Answer -Name 'services' -Absent $absent -Question { Get-NodeService -Names $Given.services -Tasks $Given.tasks })
            rules = @(Get-Answer -Name 'rules' -Absent $absent -Question { Get-Rule -Ports $Given.ports })
            statistics = @(Get-Answer -Name 'statistics' -Absent $absent -Question { Get-Statistic })
            proxies = @(Get-Answer -Name 'proxies' -Absent $absent -Question { Get-Proxy })
            plugins = @(Get-Answer -Name 'plugins' -Absent $absent -Question { Get-Plugin })
            logs = @(Get-Answer -Name 'logs' -Absent $absent -Question {
                    Get-LogEnd -Names (@($Given.services) + @($Given.tasks)) -Folder $Given.logs -Lines $Given.lines
                })
            absent = $absent
        }
    })

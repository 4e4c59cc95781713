# NetAdapter on a Wine node: the container's network devices, by Linux's ip.

Set-StrictMode -Version 3.0
$script:Disabled = 'HKLM:\SOFTWARE\hybridlab\DisabledAdapters'

function Get-NetAdapter {
    [CmdletBinding()]
    param([Parameter(Position = 0)] [string[]]$Name, [Alias('ifIndex')] [int[]]$InterfaceIndex, [switch]$IncludeHidden)
    NetTCPIP\Read-Ip -Words 'link', 'show' | Where-Object -FilterScript {
        $device = $_
        $device.ifname -ne 'lo' -and
        (-not $Name -or @($Name | Where-Object -FilterScript { $device.ifname -like $_ }).Count -gt 0) -and
        (-not $InterfaceIndex -or $InterfaceIndex -contains [int]$device.ifindex)
    } | ForEach-Object -Process {
        [pscustomobject]@{
            Name = [string]$_.ifname
            InterfaceAlias = [string]$_.ifname
            InterfaceDescription = "Linux device $($_.ifname)"
            InterfaceIndex = [int]$_.ifindex
            ifIndex = [int]$_.ifindex
            MacAddress = ([string]$_.address).Replace(':', '-').ToUpperInvariant()
            MtuSize = [int]$_.mtu
            Status = if (@($_.flags) -notcontains 'UP') { 'Disabled' } elseif (@($_.flags) -contains 'LOWER_UP') { 'Up' } else { 'Disconnected' }
            Virtual = $false
            Hidden = $false
        }
    }
}

function Get-NetAdapterStatistics {
    [CmdletBinding()] param([Parameter(Position = 0)] [string[]]$Name)
    NetTCPIP\Read-Ip -Words '-statistics', 'link', 'show' | Where-Object -FilterScript { $_.ifname -ne 'lo' } | ForEach-Object -Process {
        [pscustomobject]@{
            Name = [string]$_.ifname
            ReceivedBytes = [long]$_.stats64.rx.bytes
            SentBytes = [long]$_.stats64.tx.bytes
            ReceivedUnicastPackets = [long]$_.stats64.rx.packets
            SentUnicastPackets = [long]$_.stats64.tx.packets
            ReceivedDiscardedPackets = [long]$_.stats64.rx.dropped
            OutboundDiscardedPackets = [long]$_.stats64.tx.dropped
            ReceivedPacketErrors = [long]$_.stats64.rx.errors
            OutboundPacketErrors = [long]$_.stats64.tx.errors
        }
    }
}

function Disable-NetAdapter {
    # Linux forgets the routes by a card that is down, and Windows keeps them: they are saved.
    [CmdletBinding(SupportsShouldProcess)]
    param([Parameter(ValueFromPipeline)] [psobject]$InputObject, [Parameter(Position = 0)] [string[]]$Name)
    process {
        if ($InputObject) { $Name = @($InputObject.Name) }
        foreach ($adapter in @(Get-NetAdapter -Name $Name | Where-Object -Property Status -NE -Value 'Disabled')) {
            $routes = (Invoke-Linux -Program 'ip' -Words '-json', '-4', 'route', 'show', 'dev', $adapter.Name) -join ''
            $null = New-Item -Path $script:Disabled -Force
            $null = New-ItemProperty -LiteralPath $script:Disabled -Name $adapter.Name -PropertyType String -Value $routes -Force
            $null = Invoke-Linux -Program 'ip' -Words 'link', 'set', $adapter.Name, 'down'
        }
    }
}

function Enable-NetAdapter {
    [CmdletBinding(SupportsShouldProcess)]
    param([Parameter(ValueFromPipeline)] [psobject]$InputObject, [Parameter(Position = 0)] [string[]]$Name)
    process {
        if ($InputObject) { $Name = @($InputObject.Name) }
        foreach ($adapter in @(Get-NetAdapter -Name $Name)) {
            $null = Invoke-Linux -Program 'ip' -Words 'link', 'set', $adapter.Name, 'up'
            $kept = Get-ItemProperty -LiteralPath $script:Disabled -Name $adapter.Name -ErrorAction SilentlyContinue
            if (-not $kept) { continue }
            foreach ($route in @(ConvertFrom-Json -InputObject ([string]$kept.($adapter.Name)))) {
                $fields = $route.PSObject.Properties
                if ($fields['protocol'] -and $route.protocol -eq 'kernel') { continue }
                $words = @('route', 'replace', $route.dst)
                if ($fields['gateway']) { $words += 'via', $route.gateway }
                if (@($route.flags) -contains 'onlink') { $words += 'onlink' }
                $null = Invoke-Linux -Program 'ip' -Words ($words + @('dev', $adapter.Name))
            }
            Remove-ItemProperty -LiteralPath $script:Disabled -Name $adapter.Name
        }
    }
}

Export-ModuleMember -Function Get-NetAdapter, Get-NetAdapterStatistics, Disable-NetAdapter, Enable-NetAdapter

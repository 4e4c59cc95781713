# NetAdapter on a Wine node: the container's network devices, by Linux's ip.

Set-StrictMode -Version 3.0

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
            Status = if (@($_.flags) -contains 'LOWER_UP') { 'Up' } else { 'Disconnected' }
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

Export-ModuleMember -Function Get-NetAdapter, Get-NetAdapterStatistics

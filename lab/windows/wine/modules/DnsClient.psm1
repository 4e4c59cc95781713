# DnsClient on a Wine node: Wine asks Linux for names, so the servers are those of /etc/resolv.conf.

Set-StrictMode -Version 3.0

function Get-DnsClientServerAddress {
    [CmdletBinding()] param([Alias('ifIndex')] [int[]]$InterfaceIndex, [string]$AddressFamily)
    $servers = @()
    if (Test-Path -LiteralPath 'Z:\etc\resolv.conf') {
        $servers = @([System.IO.File]::ReadAllLines('Z:\etc\resolv.conf') | Where-Object -FilterScript { $_ -match '^nameserver\s' } |
                ForEach-Object -Process { ($_ -split '\s+')[1] })
    }
    [pscustomobject]@{ InterfaceIndex = @($InterfaceIndex)[0]; AddressFamily = 2; ServerAddresses = $servers }
}

function Set-DnsClientServerAddress {
    [CmdletBinding()]
    param([Alias('ifIndex')] [int]$InterfaceIndex, [string[]]$ServerAddresses, [switch]$ResetServerAddresses)
    $lines = @($ServerAddresses | Where-Object -FilterScript { $_ } | ForEach-Object -Process { "nameserver $_" })
    [System.IO.File]::WriteAllText('Z:\etc\resolv.conf', (($lines -join "`n") + "`n"))
}

Export-ModuleMember -Function Get-DnsClientServerAddress, Set-DnsClientServerAddress

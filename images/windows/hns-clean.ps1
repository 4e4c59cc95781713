# Removes what an earlier lab left in the Host Networking Service: policy lists, endpoints,
# networks.
# Services that would recreate them are stopped first. Removing a network cuts the computer off the
# network for seconds: the calling shell may be cut off, and calls again. Facts: policies,
# endpoints, networks (numbers removed), kept.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    stop = 'string[]'
    keep = 'string[]'
}

exit (Invoke-Step -Name 'hns-clean' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $Result.Facts = @{ policies = 0; endpoints = 0; networks = 0; kept = @() }
        if (-not (Get-Command -Name 'Get-HnsNetwork' -ErrorAction SilentlyContinue)) {
            # Without Containers and Hyper-V there is no such service.
            return
        }
        foreach ($name in $Given.stop) {
            try {
                Get-Service -Name $name -ErrorAction SilentlyContinue | Stop-Service -Force
            } catch {
                # A service that node-leave has deleted is listed until its last handle is closed.
                if (Get-Service -Name $name -ErrorAction SilentlyContinue) {
                    throw
                }
            }
        }
        $networks = @(Get-HnsNetwork | Where-Object -FilterScript { $_ })
        $kept = @($networks | Where-Object -FilterScript { $Given.keep -contains $_.Name })
        $ids = @($kept | ForEach-Object -Process { $_.ID })
        $old = @($networks | Where-Object -FilterScript { $ids -notcontains $_.ID })
        $policies = @(Get-HnsPolicyList | Where-Object -FilterScript { $_ })
        $endpoints = @(Get-HnsEndpoint |
                Where-Object -FilterScript { $_ -and $ids -notcontains $_.VirtualNetwork })
        $policies | Remove-HnsPolicyList
        $endpoints | Remove-HnsEndpoint
        $old | Remove-HnsNetwork
        $left = @(Get-HnsNetwork | Where-Object -FilterScript { $_ -and $ids -notcontains $_.ID })
        if ($left.Count -gt 0) {
            throw "networks would not go: $(($left | ForEach-Object -Process { $_.Name }) -join ', ')"
        }
        $Result.Changed = $policies.Count + $endpoints.Count + $old.Count -gt 0
        $Result.Facts = @{
            policies = $policies.Count
            endpoints = $endpoints.Count
            networks = $old.Count
            kept = @($kept | ForEach-Object -Process { [string]$_.Name })
        }
    })

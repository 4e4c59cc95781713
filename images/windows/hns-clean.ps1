# Removes what an earlier life left in the Host Networking Service: policy lists, endpoints, networks.
# Services that would make them anew are stopped first. Removing a network takes the computer off
# the net for seconds: the shell that asked may be cut off, and asks again. Facts: policies,
# endpoints, networks (how many went), kept.
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
            if (Get-Service -Name $name -ErrorAction SilentlyContinue) {
                Stop-Service -Name $name -Force
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

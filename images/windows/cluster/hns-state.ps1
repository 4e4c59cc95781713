# Reports the progress of creating HNS networks; changes nothing.
# Facts: address (whether the node has it), networks and endpoints (of HNS), done and error (the
# result of hns-make), tasks (their states), there (which of the files exist).
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    address = 'string'
    files = 'string[]'
    tasks = 'string[]'
}

exit (Invoke-Step -Name 'hns-state' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $note = Get-StatePath -Name 'hns-make.result'
        $come = $null
        if (Test-Path -LiteralPath $note -PathType Leaf) {
            $come = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($note))
        }
        $tasks = @{}
        foreach ($name in $Given.tasks) {
            $tasks[$name] = Get-TaskState -Name $name
        }
        $Result.Facts = @{
            address = [bool](Get-AddressIndex -Address $Given.address)
            networks = @(Get-HnsList -Kind networks | ForEach-Object -Process {
                    @{
                        name = [string]$_.Name
                        type = [string]$_.Type
                        prefix = Get-Prefix -Network $_
                        management = [string](Get-Part -Value $_ -Name 'ManagementIP')
                        vsid = Get-Isolation -Network $_
                    }
                })
            endpoints = @(Get-HnsList -Kind endpoints | ForEach-Object -Process {
                    @{
                        name = [string]$_.Name
                        address = [string](Get-Part -Value $_ -Name 'IPAddress')
                    }
                })
            done = [bool](Get-Part -Value $come -Name 'done')
            error = [string](Get-Part -Value $come -Name 'error')
            tasks = $tasks
            there = @($Given.files | Where-Object -FilterScript { Test-Path -LiteralPath $_ })
        }
    })

# Reports the state of a node's services, and whether they survive a restart.
# Changes nothing. Facts: services (name, state, start, depends), tasks (name, state).
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    services = 'string[]'
    tasks = 'string[]'
}

exit (Invoke-Step -Name 'node-health' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $services = @($Given.services | ForEach-Object -Process {
                $found = Get-Service -Name $_ -ErrorAction SilentlyContinue
                if ($found) {
                    @{
                        name = $_
                        state = [string]$found.Status
                        start = [string]$found.StartType
                        depends = @($found.ServicesDependedOn | ForEach-Object -Process { [string]$_.Name })
                    }
                } else {
                    @{ name = $_; state = 'missing'; start = ''; depends = @() }
                }
            })
        $tasks = @($Given.tasks | ForEach-Object -Process {
                @{ name = $_; state = Get-TaskState -Name $_ }
            })
        $Result.Facts = @{ services = $services; tasks = $tasks }
    })

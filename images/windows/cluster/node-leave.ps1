# Removes what an earlier membership left: services, tasks, files.
# HNS is cleaned by another step (hns-clean). Facts: services, tasks, paths (removed).
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    stop = 'string[]'
    services = 'string[]'
    tasks = 'string[]'
    paths = 'string[]'
    programs = 'string[]'
}

exit (Invoke-Step -Name 'node-leave' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $tasks = @($Given.tasks | Where-Object -FilterScript { Get-TaskState -Name $_ })
        foreach ($name in $tasks) {
            Stop-ScheduledTask -TaskName "hybridlab-$name"
            $null = Remove-Task -Name $name
        }
        $null = Stop-Program -Name $Given.programs
        foreach ($name in $Given.stop) {
            if (Get-Service -Name $name -ErrorAction SilentlyContinue) {
                Stop-Service -Name $name -Force
            }
        }
        $services = @($Given.services | Where-Object -FilterScript {
                Get-Service -Name $_ -ErrorAction SilentlyContinue
            })
        foreach ($name in $services) {
            $null = Invoke-Native -Path 'sc.exe' -Arguments 'delete', $name
            $null = Remove-IfThere -Path (Get-StatePath -Name "service-$name")
        }
        $paths = @($Given.paths | Where-Object -FilterScript { Test-Path -LiteralPath $_ })
        foreach ($path in $paths) {
            $null = Remove-IfThere -Path $path
        }
        $Result.Changed = $tasks.Count + $services.Count + $paths.Count -gt 0
        $Result.Facts = @{ services = $services; tasks = $tasks; paths = $paths }
    })

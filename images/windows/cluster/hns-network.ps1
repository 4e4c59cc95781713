# Lets a task create HNS networks (hns-make), and returns at once.
# The first network takes over the adapter, and the link drops for seconds: a waiting shell would be
# cut off. hns-state reports the task's progress. Facts: made (everything exists already), task.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    address = 'string'
    networks = 'string[]'
    endpoint = 'string?'
    attachment = 'string'
    settle_seconds = 'int'
}

function Start-Making {
    # Starts the task with these settings; a running one is left to finish.
    [CmdletBinding()] param([Parameter(Mandatory)] [psobject]$Given)
    if ((Get-TaskState -Name 'hns-make') -eq 'Running') {
        return
    }
    $file = Get-StatePath -Name 'hns-make.json'
    $null = Set-TextFile -Path $file -Text (ConvertTo-AsciiJson -Value $Given)
    $null = Remove-IfThere -Path (Get-StatePath -Name 'hns-make.result')
    $maker = Join-Path -Path $PSScriptRoot -ChildPath 'hns-make.ps1'
    $action = New-PowerShellAction -Arguments "-File $maker -Settings $file"
    $as = New-ScheduledTaskPrincipal -UserId 'S-1-5-18' -LogonType ServiceAccount -RunLevel Highest
    $null = Register-ScheduledTask -TaskName 'hybridlab-hns-make' -Action $action -Principal $as -Force
    Start-ScheduledTask -TaskName 'hybridlab-hns-make'
}

exit (Invoke-Step -Name 'hns-network' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        if (Test-Made -Given $Given) {
            $null = Remove-Task -Name 'hns-make'
            $Result.Facts = @{ made = $true; task = '' }
            return
        }
        Start-Making -Given $Given
        $Result.Changed = $true
        $Result.Facts = @{ made = $false; task = Get-TaskState -Name 'hns-make' }
    })

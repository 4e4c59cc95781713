# Makes the scheduler run a script at every start of the machine, and now; restarts it if changed.
# For a program that is not a Windows service. It runs as SYSTEM, without a time limit. Programs
# that it has started end before it starts again. Facts: state, started.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    task = 'string'
    script = 'string'
    settings = 'string'
    programs = 'string[]'
    watched = 'string[]'
}

function Register-NodeTask {
    [CmdletBinding()] param([Parameter(Mandatory)] [psobject]$Given)
    # 255 is the maximum of the scheduler's schema. It counts failed starts, not exit codes.
    $again = @{
        RestartCount = 255
        RestartInterval = [TimeSpan]::FromMinutes(1)
        ExecutionTimeLimit = [TimeSpan]::Zero
        MultipleInstances = 'IgnoreNew'
        StartWhenAvailable = $true
    }
    $wanted = @{
        TaskName = "hybridlab-$($Given.task)"
        Action = New-PowerShellAction -Arguments "-File $($Given.script) -Settings $($Given.settings)"
        Trigger = New-ScheduledTaskTrigger -AtStartup
        Principal = New-ScheduledTaskPrincipal -UserId 'S-1-5-18' -LogonType ServiceAccount -RunLevel Highest
        Settings = New-ScheduledTaskSettingsSet @again
        Force = $true
    }
    $null = Register-ScheduledTask @wanted
}

exit (Invoke-Step -Name 'node-task' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $stamp = Get-StatePath -Name "task-$($Given.task)"
        $digest = Get-Digest -Text @($Given.script) -File (@($Given.script, $Given.settings) + @($Given.watched))
        $same = (Test-Path -LiteralPath $stamp -PathType Leaf) -and [System.IO.File]::ReadAllText($stamp) -ceq $digest
        $state = Get-TaskState -Name $Given.task
        $started = $false
        if (-not $same -or $state -ne 'Running') {
            if ($state -eq 'Running') {
                Stop-ScheduledTask -TaskName "hybridlab-$($Given.task)"
            }
            $null = Stop-Program -Name $Given.programs
            Register-NodeTask -Given $Given
            $null = Set-TextFile -Path $stamp -Text $digest
            Start-ScheduledTask -TaskName "hybridlab-$($Given.task)"
            $Result.Changed = $true
            $started = $true
        }
        $Result.Facts = @{ state = Get-TaskState -Name $Given.task; started = $started }
    })

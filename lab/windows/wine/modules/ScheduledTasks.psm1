# ScheduledTasks on a Wine node, which has no scheduler (Schedule.Service: E_NOTIMPL).
# A task is a unit of the node's systemd (lab/windows/wine/runtime/tasks.py).

Set-StrictMode -Version 3.0

function New-ScheduledTaskAction {
    [CmdletBinding()] param([Parameter(Mandatory)] [string]$Execute, [string]$Argument, [string]$WorkingDirectory)
    [pscustomobject]@{ Execute = $Execute; Arguments = $Argument; WorkingDirectory = $WorkingDirectory }
}

function New-ScheduledTaskTrigger {
    [CmdletBinding()] param([switch]$AtStartup)
    [pscustomobject]@{ AtStartup = [bool]$AtStartup }
}

function New-ScheduledTaskPrincipal {
    [CmdletBinding()] param([Parameter(Mandatory)] [string]$UserId, [string]$LogonType, [string]$RunLevel)
    [pscustomobject]@{ UserId = $UserId; LogonType = $LogonType; RunLevel = $RunLevel }
}

function New-ScheduledTaskSettingsSet {
    [CmdletBinding()]
    param(
        [int]$RestartCount, [timespan]$RestartInterval, [timespan]$ExecutionTimeLimit,
        [string]$MultipleInstances, [switch]$StartWhenAvailable, [switch]$AllowStartIfOnBatteries,
        [switch]$DontStopIfGoingOnBatteries
    )
    [pscustomobject]@{ RestartCount = $RestartCount }
}

function Register-ScheduledTask {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [string]$TaskName, [Parameter(Mandatory)] [psobject]$Action,
        [psobject]$Trigger, [psobject]$Principal, [psobject]$Settings, [switch]$Force
    )
    $start = [string][int][bool]($Trigger -and $Trigger.AtStartup)
    $null = Invoke-Linux -Program 'hybridlab-task' -Words 'register', $TaskName, $start, $Action.Execute, ([string]$Action.Arguments)
    Get-ScheduledTask -TaskName $TaskName
}

function Get-ScheduledTask {
    [CmdletBinding()] param([Parameter(Position = 0)] [string[]]$TaskName = '*')
    $tasks = @(Invoke-Linux -Program 'hybridlab-task' -Words 'list' | Where-Object -FilterScript { $_ } | ForEach-Object -Process {
            $name, $state = "$_".Trim() -split ' ', 2
            [pscustomobject]@{ TaskName = $name; TaskPath = '\'; State = $state }
        })
    $matching = @($tasks | Where-Object -FilterScript {
            $task = $_
            @($TaskName | Where-Object -FilterScript { $task.TaskName -like $_ }).Count -gt 0
        })
    if ($matching.Count -eq 0) {
        Write-Error -Message "No MSFT_ScheduledTask objects found with property 'TaskName' equal to '$TaskName'." -Category ObjectNotFound
    }
    $matching
}

function Start-ScheduledTask {
    [CmdletBinding()] param([Parameter(Mandatory)] [string]$TaskName)
    $null = Invoke-Linux -Program 'hybridlab-task' -Words 'start', $TaskName
}

function Stop-ScheduledTask {
    [CmdletBinding()] param([Parameter(Mandatory)] [string]$TaskName)
    $null = Invoke-Linux -Program 'hybridlab-task' -Words 'stop', $TaskName
}

function Unregister-ScheduledTask {
    [CmdletBinding(SupportsShouldProcess)]
    param([Parameter(ValueFromPipeline)] [psobject]$InputObject, [string]$TaskName)
    process {
        $name = if ($InputObject) { $InputObject.TaskName } else { $TaskName }
        $null = Invoke-Linux -Program 'hybridlab-task' -Words 'remove', $name
    }
}

function Get-ScheduledTaskInfo {
    [CmdletBinding()] param([Parameter(Mandatory)] [string]$TaskName)
    [pscustomobject]@{ TaskName = $TaskName; LastTaskResult = 0 }
}

Export-ModuleMember -Function New-ScheduledTask*, *-ScheduledTask, Get-ScheduledTaskInfo

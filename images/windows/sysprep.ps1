# Generalizes the installation and shuts it down, after the calling shell has its answer.
# The step answers at once. A SYSTEM task runs this script again with -After, waits for the caller
# to end, closes the ports, runs sysprep.exe without an answer file (its settings for the generalize
# pass are set in the registry) and checks that it succeeded: it reports "phase sysprep" and, on
# failure, "failed sysprep" on COM1, and opens the ports again for debugging.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings, [int]$After = 0)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    settle_seconds = 'int'
    keep_devices = 'bool'
    skip_rearm = 'bool'
}

$folder = "$env:SystemRoot\System32\Sysprep"
$kept = 'C:\hybridlab\sealing.json'
$tag = Join-Path -Path $folder -ChildPath 'Sysprep_succeeded.tag'

function Set-Generalize {
    # The generalize pass of an answer file: devices are kept, activation is not rearmed.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [bool]$KeepDevices,
        [Parameter(Mandatory)] [bool]$SkipRearm
    )
    $devices = 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\Sysprep\Settings\sppnp'
    $null = Set-RegistryValue -Path $devices -Name 'PersistAllDeviceInstalls' -Kind DWord -Value ([int]$KeepDevices)
    $activation = 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion\SoftwareProtectionPlatform'
    $null = Set-RegistryValue -Path $activation -Name 'SkipRearm' -Kind DWord -Value ([int]$SkipRearm)
}

function Get-SetupError {
    # The last errors that sysprep has logged.
    [CmdletBinding()] [OutputType([string])] param()
    $file = Join-Path -Path $folder -ChildPath 'Panther\setuperr.log'
    if (-not (Test-Path -LiteralPath $file -PathType Leaf)) {
        return 'it has logged no error'
    }
    return (Get-Content -LiteralPath $file -Tail 3) -join '; '
}

function Invoke-Sysprep {
    # The part that runs without a caller; returns the exit code of the script.
    [CmdletBinding()] [OutputType([int])]
    param(
        [Parameter(Mandatory)] [psobject]$Given,
        [Parameter(Mandatory)] [int]$After
    )
    try {
        Wait-Until -What "process $After to end" -Seconds 60 -Condition {
            if (Get-Process -Id $After -ErrorAction SilentlyContinue) {
                return 'it runs'
            }
            return $true
        }
        Start-Sleep -Seconds $Given.settle_seconds
        Write-Phase -Name 'sysprep'
        Close-Port
        Set-Generalize -KeepDevices $Given.keep_devices -SkipRearm $Given.skip_rearm
        $null = Remove-AnswerFile
        $found = @(Find-AnswerFile)
        if ($found.Count -gt 0) {
            throw "'$($found -join "', '")' would be the answer file of every clone: take the medium out"
        }
        $null = Remove-IfThere -Path $tag
        $null = Invoke-Native -Path (Join-Path -Path $folder -ChildPath 'sysprep.exe') -Arguments @(
            '/oobe', '/generalize', '/mode:vm', '/shutdown', '/quiet')
        if (-not (Test-Path -LiteralPath $tag -PathType Leaf)) {
            throw "sysprep.exe has ended without success: $(Get-SetupError)"
        }
        return 0
    } catch {
        Write-Failure -Name 'sysprep' -Message "$_"
        Open-Port
        return 1
    }
}

if ($After -ne 0) {
    exit (Invoke-Sysprep -Given (Read-Settings -Path $Settings -Shape $shape) -After $After)
}

exit (Invoke-Step -Name 'sysprep' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        Wait-Until -What 'the answer medium to be out' -Seconds 60 -Condition {
            $null = Remove-AnswerFile
            $found = @(Find-AnswerFile)
            if ($found.Count -eq 0) {
                return $true
            }
            return "there is '$($found -join "', '")'"
        }
        $null = Remove-Task -Name 'sysprep'
        # The caller removes the settings after the answer.
        [System.IO.File]::Copy($Settings, $kept, $true)
        $action = New-PowerShellAction -Arguments "-File $PSCommandPath -Settings $kept -After $PID"
        $as = New-ScheduledTaskPrincipal -UserId 'S-1-5-18' -LogonType ServiceAccount -RunLevel Highest
        $null = Register-ScheduledTask -TaskName 'hybridlab-sysprep' -Action $action -Principal $as -Force
        Start-ScheduledTask -TaskName 'hybridlab-sysprep'
        $Result.Changed = $true
        $Result.Facts = @{ settle_seconds = [int]$Given.settle_seconds }
    })

# Refuses a Windows that is too old, or updates it from a local update file.
# The fourth part of the version (UBR) is compared. Facts: build, revision.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    build = 'int'
    least_revision = 'int'
    why = 'string'
    update = 'string?'
    update_sha256 = 'string?'
    update_seconds = 'int'
}

$current = 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion'
$notApplicable = -2145124329
$already = 2359302
$rebootNeeded = 3010, 1641

function Install-Update {
    # Installs an .msu; returns the exit code of wusa.exe, which refuses sessions over the network.
    [CmdletBinding()] [OutputType([int])]
    param(
        [Parameter(Mandatory)] [string]$Path,
        [Parameter(Mandatory)] [int]$Seconds
    )
    $wusa = "$env:SystemRoot\System32\wusa.exe"
    $code = Invoke-AsSystem -Path $wusa -Arguments "$Path /quiet /norestart" -Seconds $Seconds
    if ($code -eq $notApplicable) {
        throw "'$Path' is an update for another Windows"
    }
    if ($code -notin @(0, $already) + $rebootNeeded) {
        throw "wusa.exe ended with exit code $code for '$Path'"
    }
    return $code
}

exit (Invoke-Step -Name 'patch-level' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $read = Get-ItemProperty -LiteralPath $current
        $build = [int]$read.CurrentBuildNumber
        $revision = [int]$read.UBR
        $Result.Facts = @{ build = $build; revision = $revision }
        if ($build -ne $Given.build) {
            throw "this is build $build, not $($Given.build)"
        }
        if ($revision -ge $Given.least_revision) {
            return
        }
        if (-not $Given.update) {
            throw "build $build.$revision is older than $build.$($Given.least_revision): $($Given.why)"
        }
        Confirm-Sha256 -Path $Given.update -Digest $Given.update_sha256
        $code = Install-Update -Path $Given.update -Seconds $Given.update_seconds
        if ($code -eq $already) {
            throw "'$($Given.update)' is installed, and build $build.$revision is still too old"
        }
        $Result.Changed = $true
        # The reboot increases the revision.
        $Result.Reboot = $true
    })

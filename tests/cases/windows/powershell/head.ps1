[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

function Get-Thing {
    [CmdletBinding()]
    param([Parameter(Mandatory)] [string]$Name)
    return "$Name in $Settings"
}


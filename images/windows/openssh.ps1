# Puts OpenSSH right again: the service, its configuration, the one key that may log in.
# Facts: key (the public host key), status of the service.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    authorized_key = 'string'
    archive = 'string?'
}

exit (Invoke-Step -Name 'openssh' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $installed = Install-OpenSsh -Archive "$($Given.archive)"
        $set = Set-OpenSsh -AuthorizedKey $Given.authorized_key
        Open-Port
        $Result.Changed = $installed -or $set
        $Result.Facts = @{
            key = Get-HostKey
            service = [string](Get-Service -Name 'sshd').Status
        }
    })

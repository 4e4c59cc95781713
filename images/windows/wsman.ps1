# Checks WinRM's configuration and sets its quotas.
# Does not repair the listener: the certificate is pinned and must not change.
# Facts: certificate (SHA-256), subject, until, start (of the service).
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    timeout_ms = 'int'
    certificate = 'string?'
}

exit (Invoke-Step -Name 'wsman' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $certificate = Get-ListenerCertificate
        $digest = Get-Sha256 -Bytes $certificate.RawData
        if ($Given.certificate -and $Given.certificate -cne $digest) {
            throw "WinRM shows the certificate $digest, not $($Given.certificate)"
        }
        foreach ($path in 'WSMan:\localhost\Service\AllowUnencrypted', 'WSMan:\localhost\Service\Auth\Basic') {
            if ([string](Get-Item -Path $path).Value -ne 'false') {
                throw "$path is not false: passwords could travel in clear"
            }
        }
        $Result.Changed = Set-WinRmQuota -TimeoutMs $Given.timeout_ms
        $service = Get-ItemProperty -LiteralPath 'HKLM:\SYSTEM\CurrentControlSet\Services\WinRM'
        $Result.Facts = @{
            certificate = $digest
            subject = [string]$certificate.Subject
            until = $certificate.NotAfter.ToUniversalTime().ToString('yyyy-MM-ddTHH:mm:ssZ')
            start = [int]$service.Start
        }
    })

# Has the computer, WinHTTP and named services go through a proxy, or through none.
# A proxy with a name and a password in its address is refused: it would stand in the registry for
# everybody to read. Facts: services (those that were started anew).
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    http = 'string?'
    https = 'string?'
    no_proxy = 'string[]'
    services = 'string[]'
}

function Set-MachineVariable {
    # Sets or removes a variable of the whole computer; answers whether it was another one.
    [CmdletBinding()] [OutputType([bool])]
    param(
        [Parameter(Mandatory)] [string]$Name,
        [Parameter(Mandatory)] [AllowEmptyString()] [string]$Value
    )
    if ([string][Environment]::GetEnvironmentVariable($Name, 'Machine') -ceq $Value) {
        return $false
    }
    # An empty text removes it.
    [Environment]::SetEnvironmentVariable($Name, $Value, 'Machine')
    return $true
}

function Set-ServiceEnvironment {
    # Gives a service variables of its own: it would see the computer's after a reboot only.
    [CmdletBinding()] [OutputType([bool])]
    param(
        [Parameter(Mandatory)] [string]$Name,
        [Parameter(Mandatory)] [AllowEmptyCollection()] [string[]]$Line
    )
    $path = "HKLM:\SYSTEM\CurrentControlSet\Services\$Name"
    if (-not (Test-Path -LiteralPath $path)) {
        throw "there is no service '$Name'"
    }
    if ($Line.Count -eq 0) {
        $changed = Remove-RegistryValue -Path $path -Name 'Environment'
    } else {
        $changed = Set-RegistryValue -Path $path -Name 'Environment' -Kind MultiString -Value $Line
    }
    if ($changed -and (Get-Service -Name $Name).Status -eq 'Running') {
        Restart-Service -Name $Name -Force
    }
    return $changed
}

function Set-WinHttp {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [AllowEmptyString()] [string]$Proxy,
        [Parameter(Mandatory)] [AllowEmptyString()] [string]$Bypass
    )
    $arguments = @('winhttp', 'reset', 'proxy')
    if ($Proxy) {
        $arguments = @('winhttp', 'set', 'proxy', "proxy-server=$($Proxy -replace '^https?://', '')")
        if ($Bypass) {
            $arguments += "bypass-list=$Bypass"
        }
    }
    $null = Invoke-Native -Path 'netsh.exe' -Arguments $arguments
}

exit (Invoke-Step -Name 'proxy' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $wanted = [ordered]@{
            HTTP_PROXY = "$($Given.http)"
            HTTPS_PROXY = "$($Given.https)"
            NO_PROXY = @($Given.no_proxy) -join ','
        }
        foreach ($name in 'HTTP_PROXY', 'HTTPS_PROXY') {
            if ($wanted[$name].Contains('@')) {
                throw "$name holds a name and a password: give a proxy that needs none"
            }
        }
        $lines = @()
        foreach ($name in $wanted.Keys) {
            if (Set-MachineVariable -Name $name -Value $wanted[$name]) {
                $Result.Changed = $true
            }
            if ($wanted[$name]) {
                $lines += "$name=$($wanted[$name])"
            }
        }
        Set-WinHttp -Proxy $wanted['HTTP_PROXY'] -Bypass (@($Given.no_proxy) -join ';')
        $touched = @($Given.services |
                Where-Object -FilterScript { Set-ServiceEnvironment -Name $_ -Line $lines })
        if ($touched.Count -gt 0) {
            $Result.Changed = $true
        }
        $Result.Facts = @{ services = $touched }
    })

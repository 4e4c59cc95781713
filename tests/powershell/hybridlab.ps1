<#
.SYNOPSIS
hybridlab.psm1, as far as it is not Windows: text for COM1, shapes of settings, the contract of a step.

.DESCRIPTION
pwsh -NoProfile -File tests/powershell/hybridlab.ps1
#>
Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath '../../images/windows/hybridlab.psm1') -Force -DisableNameChecking
& (Get-Module -Name 'hybridlab') {
    function script:Write-Log {
        param($Message)
    }
}
$file = Join-Path -Path ([System.IO.Path]::GetTempPath()) -ChildPath "hybridlab-$PID.json"
$script:failures = 0

function Test-That {
    param([string]$What, [scriptblock]$Body)
    try {
        if ((& $Body) -eq $true) { Write-Output "ok   $What"; return }
        Write-Output "FAIL $What"
    } catch {
        Write-Output "FAIL ${What}: $_ $($_.ScriptStackTrace)"
    }
    $script:failures += 1
}
function Invoke-Told {
    <# What a step writes to standard output, and its exit code. #>
    param([string]$Settings, [hashtable]$Shape, [scriptblock]$Body)
    [System.IO.File]::WriteAllText($file, $Settings)
    $before = [Console]::Out
    $written = New-Object -TypeName 'System.IO.StringWriter'
    [Console]::SetOut($written)
    try {
        $code = Invoke-Step -Name 'x' -Settings $file -Shape $Shape -Body $Body
    } finally {
        [Console]::SetOut($before)
    }
    return [pscustomobject]@{ Code = $code; Said = ConvertFrom-Json -InputObject $written.ToString() }
}

Test-That -What 'no character that cmd.exe reads goes to COM1' -Body {
    (ConvertTo-Plain -Text "a & b | c > `"d`" %PATH% `r`n e^f") -eq 'a b c d PATH e f'
}
Test-That -What 'a line for COM1 is no longer than 300 characters, and never empty' -Body {
    (ConvertTo-Plain -Text ('x' * 400)).Length -eq 300 -and (ConvertTo-Plain -Text '') -eq 'nothing was said'
}
Test-That -What 'kinds of settings are told apart' -Body {
    $right = (Test-Kind -Value 'a' -Kind 'string'), (Test-Kind -Value 3 -Kind 'int'), (Test-Kind -Value $null -Kind 'string?'), (Test-Kind -Value @('a') -Kind 'string[]')
    $wrong = (Test-Kind -Value 3 -Kind 'string'), (Test-Kind -Value $null -Kind 'string'), (Test-Kind -Value @(1) -Kind 'string[]'), (Test-Kind -Value 'a' -Kind 'bool')
    $right -notcontains $false -and $wrong -notcontains $true
}
Test-That -What 'a step answers with what it has found' -Body {
    $told = Invoke-Told -Settings '{"a": "b"}' -Shape @{ a = 'string' } -Body {
        param($Given, $Result)
        $Result.Changed = $true
        $Result.Facts = @{ a = $Given.a }
    }
    $told.Code -eq 0 -and $told.Said.changed -and $told.Said.facts.a -eq 'b'
}
Test-That -What 'a step that asks for a reboot ends with 3010' -Body {
    (Invoke-Told -Settings '{}' -Shape @{} -Body {
            param($Given, $Result)
            $Result.Reboot = $true
        }).Code -eq 3010
}
Test-That -What 'a step that fails says why, and ends with 1' -Body {
    $told = Invoke-Told -Settings '{}' -Shape @{} -Body {
        param($Given, $Result)
        throw 'no room'
    }
    $told.Code -eq 1 -and $told.Said.error -eq 'no room'
}
Test-That -What 'a setting too many, or too few, is refused' -Body {
    $many = Invoke-Told -Settings '{"a": "b"}' -Shape @{} -Body { $null }
    $few = Invoke-Told -Settings '{}' -Shape @{ a = 'string' } -Body { $null }
    $many.Said.error -like "*nobody reads 'a'" -and $few.Said.error -like "*'a' is missing"
}
Test-That -What 'a result is ASCII' -Body {
    (ConvertTo-AsciiJson -Value @{ a = [string][char]0xe9 }) -eq '{"a":"\u00e9"}'
}
Test-That -What 'a wait that is not met says what it last saw' -Body {
    try { Wait-Until -What 'x' -Seconds 0 -Condition { 'it is away' } } catch { return "$_" -eq 'waited 0 s for x; last seen: it is away' }
    $false
}

Remove-Item -Path $file -ErrorAction SilentlyContinue
exit [int]($script:failures -gt 0)

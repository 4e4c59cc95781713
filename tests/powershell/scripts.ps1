<#
.SYNOPSIS
The guests' scripts as PowerShell itself reads them: its parser, its commands and their parameters, .NET's members.

.DESCRIPTION
pwsh -NoProfile -File tests/powershell/scripts.ps1
A cmdlet that this PowerShell has is asked for its parameters, and for a set of them that has all
that are given and lacks none that is mandatory. The others, which only Windows has, are looked up
in tests/cases/windows/cmdlets.txt. Functions of the scripts are read from the scripts. What only
PowerShell 7 parses is refused: the guests have 5.1. The modules that stand in for Windows' on Wine
are read apart: their functions have the names of Windows' commands.
#>
param([string[]]$Folder = @('images/windows', 'lab/windows/wine/modules' | ForEach-Object -Process {
            Join-Path -Path $PSScriptRoot -ChildPath "../../$_" }))
Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$table = @{}
$cases = Join-Path -Path $PSScriptRoot -ChildPath '../cases/windows/cmdlets.txt'
foreach ($row in [System.IO.File]::ReadAllLines($cases)) {
    if ($row -and -not $row.StartsWith('#')) {
        $name, $parameters = $row -split ' '
        $table[$name] = @($parameters)
    }
}
$byProvider = @{ 'New-Item' = 'Transport', 'Address', 'CertificateThumbPrint' } # of WSMan:, which only Windows has
$common = @([System.Management.Automation.PSCmdlet]::CommonParameters) + 'Confirm', 'WhatIf'
$script:failures = 0

function Write-Failure {
    param([string]$Where, [string]$What)
    Write-Output "FAIL ${Where}: $What"
    $script:failures += 1
}
function Find-Node {
    param([object]$Tree, [string]$Type)
    $kind = [type]"System.Management.Automation.Language.$Type"
    $Tree.FindAll({ param($node) $node -is $kind }.GetNewClosure(), $true)
}
function Get-Own {
    <# Parameters of a function of the scripts, and those that are mandatory. #>
    param([object]$Function)
    $block = $Function.Body.ParamBlock
    $all = @(if ($block) { $block.Parameters })
    $mandatory = @($all | Where-Object -FilterScript { "$($_.Attributes)" -match '\bMandatory\b' })
    return @{
        all = @($all | ForEach-Object -Process { $_.Name.VariablePath.UserPath })
        mandatory = @($mandatory | ForEach-Object -Process { $_.Name.VariablePath.UserPath })
    }
}
function Test-Sets {
    <# Whether a real command has a set of parameters with all that are given and all that are mandatory. #>
    param([object]$Command, [string[]]$Given, [bool]$Piped)
    foreach ($set in $Command.ParameterSets) {
        $names = @($set.Parameters | ForEach-Object -Process { $_.Name; $_.Aliases })
        $needed = @($set.Parameters | Where-Object -FilterScript {
                $fed = $_.ValueFromPipeline -or $_.ValueFromPipelineByPropertyName
                $_.IsMandatory -and -not ($Piped -and $fed)
            } | ForEach-Object -Process { $_.Name })
        $strange = @($Given | Where-Object -FilterScript { $names -notcontains $_ })
        $missing = @($needed | Where-Object -FilterScript { $Given -notcontains $_ })
        if ($strange.Count + $missing.Count -eq 0) { return $true }
    }
    return $false
}
function Test-Call {
    <# The findings about one call of a command. #>
    param([object]$Call, [string]$Where, [hashtable]$Functions)
    $name = $Call.GetCommandName()
    if (-not $name -or $name -notmatch '^[A-Za-z]+-[A-Za-z]+$') { return }
    $elements = @($Call.CommandElements | Select-Object -Skip 1)
    $given = @($elements | Where-Object -FilterScript { $_ -is [System.Management.Automation.Language.CommandParameterAst] } |
            ForEach-Object -Process { $_.ParameterName })
    $splatted = @($elements | Where-Object -FilterScript { $_.PSObject.Properties['Splatted'] -and $_.Splatted }).Count -gt 0
    $pipeline = $Call.Parent
    $piped = $pipeline.PSObject.Properties['PipelineElements'] -and $pipeline.PipelineElements[0] -ne $Call
    if ($Functions.ContainsKey($name)) {
        $asked.own[$name] = $true
        $own = Get-Own -Function $Functions[$name]
        $known = $own.all
        $missing = @($own.mandatory | Where-Object -FilterScript { $given -notcontains $_ })
        if ($missing.Count -gt 0 -and -not $splatted) { Write-Failure -Where $Where -What "'$name' is not given -$missing" }
    } else {
        $real = Get-Command -Name $name -CommandType 'Cmdlet', 'Function' -ErrorAction SilentlyContinue | Select-Object -First 1
        if ($real) {
            $asked.real[$name] = $true
            $extra = @(if ($byProvider.ContainsKey($name)) { $byProvider[$name] })
            $known = @($real.Parameters.Keys) + @($real.Parameters.Values.Aliases) + $extra
            $plain = @($given | Where-Object -FilterScript { $common -notcontains $_ -and $extra -notcontains $_ })
            $unknown = @($plain | Where-Object -FilterScript { $known -notcontains $_ })
            if (-not $splatted -and $unknown.Count -eq 0 -and -not (Test-Sets -Command $real -Given $plain -Piped $piped)) {
                Write-Failure -Where $Where -What "'$name' takes no such set of parameters: $plain"
            }
        } elseif ($table.ContainsKey($name)) {
            $asked.table[$name] = $true
            $known = $table[$name]
        } else {
            Write-Failure -Where $Where -What "there is no command '$name'"
            return
        }
    }
    foreach ($parameter in $given) {
        if ($known -notcontains $parameter -and $common -notcontains $parameter) {
            Write-Failure -Where $Where -What "'$name' has no parameter -$parameter"
        }
    }
}
function Test-Construct {
    <# Whether Windows PowerShell 5.1 parses a node of the tree. #>
    param([object]$Node, [string]$Where)
    $newer = $Node.GetType().Name -in 'TernaryExpressionAst', 'PipelineChainAst'
    foreach ($property in 'NullConditional', 'Background') {
        $newer = $newer -or ($Node.PSObject.Properties[$property] -and $Node.$property)
    }
    $newer = $newer -or ($Node.PSObject.Properties['Operator'] -and "$($Node.Operator)" -like 'QuestionQuestion*')
    if ($newer) { Write-Failure -Where $Where -What "Windows PowerShell 5.1 does not parse: $Node" }
}
function Test-Member {
    <# Whether a static member of a .NET type exists; types of the scripts' own are left out. #>
    param([object]$Member, [string]$Where)
    if (-not $Member.Static -or $Member.Expression -isnot [System.Management.Automation.Language.TypeExpressionAst]) { return }
    $text = $Member.Expression.TypeName.FullName
    if ($text -like 'Hybridlab*') { return }
    $type = $Member.Expression.TypeName.GetReflectionType()
    $name = "$($Member.Member)"
    if (-not $type) {
        Write-Failure -Where $Where -What "there is no type $text"
    } elseif ($name -ne 'new' -and @($type.GetMember($name)).Count -eq 0) {
        Write-Failure -Where $Where -What "$text has no member $name"
    }
}

foreach ($place in $Folder) {
    $asked = @{ real = @{}; table = @{}; own = @{} }
    $trees = [ordered]@{}
    foreach ($file in Get-ChildItem -Path $place -Recurse -File | Where-Object -FilterScript { $_.Extension -in '.ps1', '.psm1' }) {
        $tokens = $null
        $errors = $null
        $trees[$file.FullName] = [System.Management.Automation.Language.Parser]::ParseFile($file.FullName, [ref]$tokens, [ref]$errors)
        foreach ($problem in $errors) {
            Write-Failure -Where "$($file.Name):$($problem.Extent.StartLineNumber)" -What $problem.Message
        }
    }
    $shared = @{}
    foreach ($path in @($trees.Keys | Where-Object -FilterScript { $_.EndsWith('.psm1') })) {
        foreach ($function in Find-Node -Tree $trees[$path] -Type 'FunctionDefinitionAst') { $shared[$function.Name] = $function }
    }
    $count = 0
    foreach ($path in $trees.Keys) {
        $name = Split-Path -Path $path -Leaf
        $functions = $shared.Clone()
        foreach ($function in Find-Node -Tree $trees[$path] -Type 'FunctionDefinitionAst') {
            $functions[$function.Name] = $function
            $count += 1
        }
        foreach ($call in Find-Node -Tree $trees[$path] -Type 'CommandAst') {
            Test-Call -Call $call -Where "${name}:$($call.Extent.StartLineNumber)" -Functions $functions
        }
        foreach ($node in Find-Node -Tree $trees[$path] -Type 'Ast') {
            Test-Construct -Node $node -Where "${name}:$($node.Extent.StartLineNumber)"
        }
        foreach ($member in Find-Node -Tree $trees[$path] -Type 'MemberExpressionAst') {
            Test-Member -Member $member -Where "${name}:$($member.Extent.StartLineNumber)"
        }
    }
    Write-Output ("$($trees.Count) scripts with $count functions; commands: $($asked.own.Count) of the scripts, " +
        "$($asked.real.Count) of this PowerShell, $($asked.table.Count) of the project's table")
    if ($trees.Count -eq 0) { Write-Failure -Where $place -What 'there are no scripts' }
}
exit [int]($script:failures -gt 0)

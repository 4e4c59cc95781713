# Runs scripts one after another for lab/windows/wine/runtime/powershell.py, which it connects to:
# a start of PowerShell on Wine takes seconds. A question is a line of JSON with path and settings
# of a script, its answer a line with code, output and errors.
[CmdletBinding()]
param([Parameter(Mandatory)] [int]$Port)

Set-StrictMode -Version 3.0
$client = New-Object -TypeName 'System.Net.Sockets.TcpClient' -ArgumentList '127.0.0.1', $Port
$reader = New-Object -TypeName 'System.IO.StreamReader' -ArgumentList $client.GetStream()
$writer = New-Object -TypeName 'System.IO.StreamWriter' -ArgumentList $client.GetStream()
$console = [Console]::Out
while ($null -ne ($line = $reader.ReadLine())) {
    $question = ConvertFrom-Json -InputObject $line
    $given = @{}
    if ($question.settings) { $given['Settings'] = [string]$question.settings }
    $output = New-Object -TypeName 'System.IO.StringWriter'
    $errors = New-Object -TypeName 'System.IO.StringWriter'
    $objects = New-Object -TypeName 'System.Collections.Generic.List[object]'
    [Console]::SetOut($output)
    $global:LASTEXITCODE = 0
    $code = 0
    try {
        & ([string]$question.path) @given 2>&1 | ForEach-Object -Process {
            if ($_ -is [System.Management.Automation.ErrorRecord]) { $errors.WriteLine("$_") }
            elseif ($_ -is [string]) { $output.WriteLine($_) }
            else { $objects.Add($_) }
        }
        $code = $global:LASTEXITCODE
    } catch {
        $errors.WriteLine("$_")
        $code = 1
    } finally {
        [Console]::SetOut($console)
    }
    if ($objects.Count -gt 0) { $output.Write(($objects | Out-String -Width 160)) }
    $answer = @{ code = [int]$code; output = $output.ToString(); errors = $errors.ToString() }
    $writer.WriteLine((ConvertTo-Json -InputObject $answer -Compress))
    $writer.Flush()
}

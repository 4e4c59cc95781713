# CimCmdlets on a Wine node, whose PowerShell has no CIM: the classes that the lab's steps ask for.

Set-StrictMode -Version 3.0

function Get-CimInstance {
    [CmdletBinding()]
    param([Parameter(Mandatory, Position = 0)] [string]$ClassName, [string]$Filter, [string]$Namespace)
    if ($ClassName -eq 'Win32_Process') {
        # not Get-Process: PowerShell's CommandLine asks this function
        & "$env:SystemRoot\System32\hybridlab-processes.exe" | ForEach-Object -Process {
            $number, $name, $line = "$_" -split "`t", 3
            [pscustomobject]@{ Name = $name; ProcessId = [int]$number; CommandLine = $line }
        }
    } elseif ($ClassName -eq 'Win32_OperatingSystem') {
        $read = Get-ItemProperty -LiteralPath 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion'
        [pscustomobject]@{
            Caption = "Microsoft $($read.ProductName)"
            BuildNumber = [string]$read.CurrentBuildNumber
            Version = "10.0.$($read.CurrentBuildNumber)"
            LocalDateTime = Get-Date
            LastBootUpTime = (Get-Item -LiteralPath 'C:\hybridlab\started').LastWriteTime
        }
    } elseif ($ClassName -ne 'SoftwareLicensingProduct') {
        throw "Invalid class '$ClassName': a Wine node has Win32_Process, Win32_OperatingSystem and SoftwareLicensingProduct"
    }
}

Export-ModuleMember -Function Get-CimInstance

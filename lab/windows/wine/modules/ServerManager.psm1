# ServerManager on a Wine node: what the lab installs on Windows (Containers) stands in already.

Set-StrictMode -Version 3.0

function Get-WindowsFeature {
    [CmdletBinding()] param([Parameter(Position = 0)] [string[]]$Name)
    $Name | ForEach-Object -Process { [pscustomobject]@{ Name = $_; InstallState = 'Installed'; Installed = $true } }
}

function Install-WindowsFeature {
    [CmdletBinding()] param([Parameter(Mandatory, Position = 0)] [string[]]$Name, [switch]$IncludeManagementTools)
    [pscustomobject]@{ Success = $true; RestartNeeded = 'No'; ExitCode = 0 }
}

Export-ModuleMember -Function Get-WindowsFeature, Install-WindowsFeature

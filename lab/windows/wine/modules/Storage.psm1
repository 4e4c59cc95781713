# Storage on a Wine node: drive D is the bundle, which has no label of its own.

Set-StrictMode -Version 3.0

function Get-Volume {
    [CmdletBinding()] param([char[]]$DriveLetter)
    $volumes = @(
        [pscustomobject]@{ DriveLetter = [char]'C'; FileSystemLabel = ''; FileSystem = 'NTFS'; DriveType = 'Fixed' }
        if (Test-Path -LiteralPath 'D:\') {
            [pscustomobject]@{ DriveLetter = [char]'D'; FileSystemLabel = 'HYBRIDBUNDLE'; FileSystem = 'CDFS'; DriveType = 'CD-ROM' }
        }
    )
    $volumes | Where-Object -FilterScript { -not $DriveLetter -or $DriveLetter -contains $_.DriveLetter }
}

Export-ModuleMember -Function Get-Volume

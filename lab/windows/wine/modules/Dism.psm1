# Dism on a Wine node: optional features that no Wine has are disabled, and none can be enabled.

Set-StrictMode -Version 3.0

function Get-WindowsOptionalFeature {
    [CmdletBinding()] param([switch]$Online, [string]$FeatureName)
    [pscustomobject]@{ FeatureName = $FeatureName; State = 'Disabled' }
}

Export-ModuleMember -Function Get-WindowsOptionalFeature

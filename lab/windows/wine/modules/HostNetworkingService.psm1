# HostNetworkingService on a Wine node: version 1 of HNS, through its own function HNSCall.

Set-StrictMode -Version 3.0

if (-not ('HybridlabWine.Hns' -as [type])) {
    # not Add-Type, whose compiler takes seconds
    $name = New-Object -TypeName 'System.Reflection.AssemblyName' -ArgumentList 'HybridlabWine.Hns'
    $assembly = [System.Reflection.Emit.AssemblyBuilder]::DefineDynamicAssembly($name, 'Run')
    $class = $assembly.DefineDynamicModule($name.Name).DefineType($name.Name, 'Public, Class')
    $asked = [type[]]@([string], [string], [string], [string].MakeByRefType())
    $call = $class.DefinePInvokeMethod('HNSCall', 'vmcompute.dll', 'Public, Static, PinvokeImpl', 'Standard', [int], $asked, 'Winapi', 'Unicode')
    $call.SetImplementationFlags('PreserveSig')
    $null = $class.CreateType()
}

function Send-Request {
    [CmdletBinding()]
    param([Parameter(Mandatory)] [string]$Method, [Parameter(Mandatory)] [string]$Path, [string]$Data = '')
    $text = ''
    $code = [HybridlabWine.Hns]::HNSCall($Method, $Path, $Data, [ref]$text)
    if ($code -lt 0) { throw "HNSCall ended with 0x$($code.ToString('x8'))" }
    $answer = ConvertFrom-Json -InputObject $text
    if (-not $answer.Success) { throw $answer.Error }
    $answer.Output
}

function Get-HnsNetwork { Send-Request -Method GET -Path '/networks/' }
function Get-HnsEndpoint { Send-Request -Method GET -Path '/endpoints/' }
function Get-HnsPolicyList { Send-Request -Method GET -Path '/policylists/' }

function Remove-HnsNetwork {
    param([Parameter(ValueFromPipeline)] [psobject]$InputObject)
    process { $null = Send-Request -Method DELETE -Path "/networks/$($InputObject.ID)" }
}

function Remove-HnsEndpoint {
    param([Parameter(ValueFromPipeline)] [psobject]$InputObject)
    process { $null = Send-Request -Method DELETE -Path "/endpoints/$($InputObject.ID)" }
}

function Remove-HnsPolicyList {
    param([Parameter(ValueFromPipeline)] [psobject]$InputObject)
    process { $null = Send-Request -Method DELETE -Path "/policylists/$($InputObject.ID)" }
}

function Set-HnsHabit {
    # Switches one of HNS' habits on or off (lab/windows/wine/hns/service.py). Windows has no such command.
    param([Parameter(Mandatory)] [string]$Name, [Parameter(Mandatory)] [bool]$On)
    $null = Send-Request -Method POST -Path "/habits/$Name" -Data (ConvertTo-Json -InputObject @{ On = $On })
}

function Restart-Hns {
    # What Restart-Service -Name hns does on Windows.
    $null = Send-Request -Method POST -Path '/restart'
}

function Update-Hns {
    # HNS makes its devices and routes again, where Linux has taken some with a card's address.
    $null = Send-Request -Method POST -Path '/refresh'
}

Export-ModuleMember -Function Get-Hns*, Remove-Hns*, Set-HnsHabit, Restart-Hns, Update-Hns

# HostNetworkingService on a Wine node: version 1 of HNS, through its own function HNSCall.

Set-StrictMode -Version 3.0

Add-Type -TypeDefinition @'
using System;
using System.Runtime.InteropServices;
namespace HybridlabWine {
    public static class Hns {
        [DllImport("vmcompute.dll", CharSet = CharSet.Unicode)]
        private static extern int HNSCall(string method, string path, string request, out string response);
        public static string Call(string method, string path, string request) {
            string response;
            int code = HNSCall(method, path, request, out response);
            if (code < 0) { throw new InvalidOperationException("HNSCall ended with 0x" + code.ToString("x8")); }
            return response;
        }
    }
}
'@

function Invoke-HnsRequest {
    [CmdletBinding()]
    param([Parameter(Mandatory)] [string]$Method, [Parameter(Mandatory)] [string]$Path, [string]$Data = '')
    $answer = ConvertFrom-Json -InputObject ([HybridlabWine.Hns]::Call($Method, $Path, $Data))
    if (-not $answer.Success) { throw $answer.Error }
    $answer.Output
}

function Get-HnsNetwork { Invoke-HnsRequest -Method GET -Path '/networks/' }
function Get-HnsEndpoint { Invoke-HnsRequest -Method GET -Path '/endpoints/' }
function Get-HnsPolicyList { Invoke-HnsRequest -Method GET -Path '/policylists/' }

function Remove-HnsNetwork {
    param([Parameter(ValueFromPipeline)] [psobject]$InputObject)
    process { $null = Invoke-HnsRequest -Method DELETE -Path "/networks/$($InputObject.ID)" }
}

function Remove-HnsEndpoint {
    param([Parameter(ValueFromPipeline)] [psobject]$InputObject)
    process { $null = Invoke-HnsRequest -Method DELETE -Path "/endpoints/$($InputObject.ID)" }
}

function Remove-HnsPolicyList {
    param([Parameter(ValueFromPipeline)] [psobject]$InputObject)
    process { $null = Invoke-HnsRequest -Method DELETE -Path "/policylists/$($InputObject.ID)" }
}

Export-ModuleMember -Function Get-Hns*, Remove-Hns*

# Programs of a Wine node's Linux, for the modules that stand in for Windows'.
# A Windows program cannot wait for a Linux one that it starts: lab/windows/wine/runtime/service.py runs
# it. Asked from here: a Windows program that asked would have to be started first.

Set-StrictMode -Version 3.0

function Invoke-Linux {
    # Runs ip, nft or hybridlab-task; returns its output's lines. An exit code other than 0 is an error.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [string]$Program,
        [Parameter(Mandatory)] [AllowEmptyString()] [string[]]$Words
    )
    $port = 10011
    $client = New-Object -TypeName 'System.Net.Sockets.TcpClient' -ArgumentList '127.0.0.1', $port
    try {
        $stream = $client.GetStream()
        # how many words, then the words, each ended by a zero
        $all = @($Program) + $Words
        $text = "$($all.Count)`n" + (($all -join "`0") + "`0")
        $asked = [System.Text.Encoding]::UTF8.GetBytes($text)
        $stream.Write($asked, 0, $asked.Length)
        $reader = New-Object -TypeName 'System.IO.StreamReader' -ArgumentList $stream
        $code = $reader.ReadLine()
        $text = $reader.ReadToEnd()
    } finally {
        $client.Close()
    }
    if ($code -ne '0') {
        throw "$Program $($Words -join ' ') ended with ${code}: $($text.Trim())"
    }
    $text -split '\r?\n' | Where-Object -FilterScript { $_ }
}

Export-ModuleMember -Function Invoke-Linux

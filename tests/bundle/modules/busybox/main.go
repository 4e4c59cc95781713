// A few programs of busybox, curl and netcat for Windows, in one file: what Kubernetes' tests call in
// its images for Windows. Upstream's images have busybox-w32 and curl. The name says which it is.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"mvdan.cc/sh/moreinterp/coreutils"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

type streams struct {
	in       io.Reader
	out, err io.Writer
}

var programs = map[string]func([]string, streams) int{
	"curl": curl, "grep": search, "nc": netcat, "seq": sequence, "sleep": sleep, "uname": uname, "wget": wget,
}

func main() {
	words := os.Args
	name := called(words[0])
	if name == "busybox" && len(words) > 1 {
		words = words[1:]
		name = called(words[0])
	}
	own := streams{os.Stdin, os.Stdout, os.Stderr}
	if run, ok := programs[name]; ok {
		os.Exit(run(words[1:], own))
	}
	if name == "sh" {
		os.Exit(shell(words[1:]))
	}
	os.Exit(interpret(quoted(append([]string{name}, words[1:]...)), nil, false))
}

func called(path string) string {
	return strings.TrimSuffix(strings.ToLower(filepath.Base(path)), ".exe")
}

// shell runs `sh [-x] -c SCRIPT [NAME [ARGUMENT...]]`.
func shell(words []string) int {
	traced := false
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		option := words[0]
		words = words[1:]
		traced = traced || strings.Contains(option, "x")
		if strings.Contains(option, "c") && len(words) > 0 {
			return interpret(words[0], words[min(2, len(words)):], traced)
		}
	}
	fmt.Fprintln(os.Stderr, "sh: only 'sh -c SCRIPT' is known")
	return 2
}

func interpret(script string, parameters []string, traced bool) int {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(script), "")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	options := []interp.RunnerOption{
		interp.StdIO(os.Stdin, os.Stdout, os.Stderr),
		interp.ExecHandlers(ownPrograms, coreutils.ExecHandler),
		interp.OpenHandler(open),
		interp.Params(append([]string{"--"}, parameters...)...),
	}
	if traced {
		options = append(options, interp.Params(append([]string{"-x", "--"}, parameters...)...))
	}
	runner, err := interp.New(options...)
	if err == nil {
		err = runner.Run(context.Background(), file)
	}
	var status interp.ExitStatus
	if errors.As(err, &status) {
		return int(status)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func ownPrograms(next interp.ExecHandlerFunc) interp.ExecHandlerFunc {
	return func(ctx context.Context, words []string) error {
		run, ok := programs[called(words[0])]
		if !ok {
			return next(ctx, words)
		}
		its := interp.HandlerCtx(ctx)
		if code := run(words[1:], streams{its.Stdin, its.Stdout, its.Stderr}); code != 0 {
			return interp.ExitStatus(code)
		}
		return nil
	}
}

func open(ctx context.Context, path string, flag int, mode os.FileMode) (io.ReadWriteCloser, error) {
	if path == "/dev/null" {
		path = os.DevNull
	}
	return interp.DefaultOpenHandler()(ctx, path, flag, mode)
}

func quoted(words []string) string {
	for index, word := range words {
		words[index] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}

const (
	unresolved = 6
	refused    = 7
	httpError  = 22
	timedOut   = 28
)

// curl knows the options that the tests use, and its own exit codes.
func curl(words []string, its streams) int {
	var address, output, told string
	var headers, fails bool
	var connecting, all time.Duration
	for index := 0; index < len(words); index++ {
		value := func() string {
			index++
			if index < len(words) {
				return words[index]
			}
			return ""
		}
		switch word := words[index]; word {
		case "-g", "-q", "-s", "-k", "-4", "-v", "--silent", "--globoff":
		case "-i":
			headers = true
		case "-f", "--fail":
			fails = true
		case "-o":
			output = value()
		case "-w":
			told = value()
		case "--connect-timeout":
			connecting = seconds(value())
		case "-m", "--max-time":
			all = seconds(value())
		default:
			if strings.HasPrefix(word, "-") {
				fmt.Fprintf(its.err, "curl: option %s: is unknown\n", word)
				return 2
			}
			address = word
		}
	}
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	answer, err := get(address, connecting, all)
	if err != nil {
		fmt.Fprintf(its.err, "curl: %v\n", err)
		return code(err)
	}
	defer answer.Body.Close()
	if fails && answer.StatusCode >= http.StatusBadRequest {
		fmt.Fprintf(its.err, "curl: (22) The requested URL returned error: %d\n", answer.StatusCode)
		return httpError
	}
	out := its.out
	if output != "" {
		out = io.Discard
	}
	if headers {
		fmt.Fprintf(out, "%s %s\r\n", answer.Proto, answer.Status)
		answer.Header.Write(out)
		fmt.Fprint(out, "\r\n")
	}
	if _, err := io.Copy(out, answer.Body); err != nil {
		fmt.Fprintf(its.err, "curl: %v\n", err)
		return code(err)
	}
	fmt.Fprint(its.out, strings.ReplaceAll(told, "%{http_code}", strconv.Itoa(answer.StatusCode)))
	return 0
}

func get(address string, connecting, all time.Duration) (*http.Response, error) {
	dialer := net.Dialer{Timeout: connecting}
	unchecked := &tls.Config{InsecureSkipVerify: true}
	transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: unchecked}
	client := http.Client{Transport: transport, Timeout: all}
	return client.Get(address)
}

func code(err error) int {
	var unknown *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &unknown):
		return unresolved
	case errors.As(err, &timeout) && timeout.Timeout():
		return timedOut
	}
	return refused
}

func seconds(text string) time.Duration {
	number, _ := strconv.ParseFloat(text, 64)
	return time.Duration(number * float64(time.Second))
}

// wget knows `wget -q -O - [-T SECONDS] URL`, however its options are joined.
func wget(words []string, its streams) int {
	var address string
	var all time.Duration
	for index := 0; index < len(words); index++ {
		switch word := words[index]; {
		case word == "-O" || word == "-T":
			index++
			if word == "-T" && index < len(words) {
				all = seconds(words[index])
			}
		case !strings.HasPrefix(word, "-"):
			address = word
		}
	}
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	answer, err := get(address, all, all)
	if err != nil {
		fmt.Fprintf(its.err, "wget: %v\n", err)
		return 1
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusBadRequest {
		fmt.Fprintf(its.err, "wget: server returned error: %s\n", answer.Status)
		return 1
	}
	if _, err := io.Copy(its.out, answer.Body); err != nil {
		return 1
	}
	return 0
}

// netcat knows `nc [-v] [-z] [-t|-u] -w SECONDS HOST PORT`.
func netcat(words []string, its streams) int {
	protocol, patience := "tcp", 10*time.Second
	var onlyConnects, talks bool
	var ends []string
	for index := 0; index < len(words); index++ {
		word := words[index]
		switch {
		case word == "-w":
			index++
			if index < len(words) {
				patience = seconds(words[index])
			}
		case strings.HasPrefix(word, "-"):
			onlyConnects = onlyConnects || strings.Contains(word, "z")
			talks = talks || strings.Contains(word, "v")
			if strings.Contains(word, "u") {
				protocol = "udp"
			}
		default:
			ends = append(ends, word)
		}
	}
	if len(ends) != 2 {
		fmt.Fprintln(its.err, "nc: HOST PORT")
		return 2
	}
	channel, err := net.DialTimeout(protocol, net.JoinHostPort(ends[0], ends[1]), patience)
	if err != nil {
		fmt.Fprintf(its.err, "nc: %v\n", err)
		return 1
	}
	defer channel.Close()
	if talks {
		fmt.Fprintf(its.err, "%s %s open\n", ends[0], ends[1])
	}
	if onlyConnects {
		return 0
	}
	if _, err := io.Copy(channel, its.in); err != nil {
		return 1
	}
	channel.SetReadDeadline(time.Now().Add(patience))
	if copied, _ := io.Copy(its.out, channel); copied == 0 {
		return 1
	}
	return 0
}

// search knows `grep [-v] [-q] [-i] PATTERN` of its standard input.
func search(words []string, its streams) int {
	var others, quiet bool
	var pattern string
	for _, word := range words {
		switch word {
		case "-v":
			others = true
		case "-q":
			quiet = true
		case "-i":
			pattern = "(?i)" + pattern
		default:
			pattern += word
		}
	}
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		fmt.Fprintf(its.err, "grep: %v\n", err)
		return 2
	}
	code := 1
	for lines := bufio.NewScanner(its.in); lines.Scan(); {
		if wanted.MatchString(lines.Text()) != others {
			code = 0
			if !quiet {
				fmt.Fprintln(its.out, lines.Text())
			}
		}
	}
	return code
}

func sequence(words []string, its streams) int {
	first, last := 1, 0
	var err error
	if len(words) > 1 {
		first, err = strconv.Atoi(words[0])
	}
	if len(words) > 0 && err == nil {
		last, err = strconv.Atoi(words[len(words)-1])
	}
	if err != nil {
		fmt.Fprintf(its.err, "seq: %v\n", err)
		return 1
	}
	for number := first; number <= last; number++ {
		fmt.Fprintln(its.out, number)
	}
	return 0
}

func sleep(words []string, _ streams) int {
	for _, word := range words {
		time.Sleep(seconds(strings.TrimSuffix(word, "s")))
	}
	return 0
}

func uname(_ []string, its streams) int {
	fmt.Fprintln(its.out, "MS/Windows")
	return 0
}

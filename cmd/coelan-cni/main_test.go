// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"coelan.io/coelan/internal/cni/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answerWith listens on a socket as an agent would, and answers each request with fn.
func answerWith(t *testing.T, path string, fn func(request []byte, conn net.Conn)) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fn(readRequest(conn), conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
}

// readRequest reads a head and as much body as it announces.
func readRequest(conn net.Conn) []byte {
	var all []byte
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		all = append(all, buf[:n]...)
		head, body, ok := bytes.Cut(all, []byte("\r\n\r\n"))
		_, length, _ := bytes.Cut(head, []byte("Content-Length: "))
		want, _ := strconv.Atoi(string(length)) // the last header
		if err != nil || ok && len(body) == want {
			return all
		}
	}
}

func reply(conn net.Conn, status, body string) {
	fmt.Fprintf(conn, "HTTP/1.0 %s\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s", status, wire.Header, wire.Version, len(body), body)
}

func runPlugin(t *testing.T, env map[string]string, stdin string) (code int, stdout string) {
	t.Helper()
	var out bytes.Buffer
	code = run("coelan-cni", func(key string) string { return env[key] }, strings.NewReader(stdin), &out, io.Discard)
	return code, out.String()
}

func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "cni.sock")
}

var addEnv = map[string]string{
	"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/run/netns/c1", "CNI_IFNAME": "eth0",
	"CNI_ARGS": `K8S_POD_NAME="x"`, "CNI_PATH": "/opt/cni/bin",
}

func TestTheAgentIsToldEverythingAndItsAnswerPrinted(t *testing.T) {
	path := socketPath(t)
	var got wire.Request
	answerWith(t, path, func(request []byte, conn net.Conn) {
		head, body, _ := bytes.Cut(request, []byte("\r\n\r\n"))
		if !bytes.HasPrefix(head, []byte("POST /v1/cni HTTP/1.0\r\n")) {
			t.Errorf("request begins with %q", head)
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Errorf("%v in %s", err, body)
		}
		reply(conn, "200 OK", `{"cniVersion":"1.0.0"}`)
	})
	conf := fmt.Sprintf(`{"cniVersion":"1.0.0","socket":%q,"timeout":2.5,"name":"Zürich"}`, path)
	code, out := runPlugin(t, addEnv, conf)
	if code != 0 || out != `{"cniVersion":"1.0.0"}` {
		t.Errorf("exit code %d, output %s", code, out)
	}
	want := wire.Request{Command: "ADD", ContainerID: "c1", Netns: "/run/netns/c1", IfName: "eth0",
		Args: `K8S_POD_NAME="x"`, Config: []byte(conf), Delegates: true}
	if got.TimeoutMillis < 2000 || got.TimeoutMillis > 2500 {
		t.Errorf("the agent is told of %d ms", got.TimeoutMillis)
	}
	got.TimeoutMillis = 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestVERSIONNeedsNoAgent(t *testing.T) {
	code, out := runPlugin(t, map[string]string{"CNI_COMMAND": "VERSION"}, "")
	want := `{
    "cniVersion": "1.1.0",
    "supportedVersions": [
        "0.1.0",
        "0.2.0",
        "0.3.0",
        "0.3.1",
        "0.4.0",
        "1.0.0",
        "1.1.0"
    ]
}
`
	if code != 0 || out != want {
		t.Errorf("exit code %d, output %s", code, out)
	}
}

func TestWithoutACommandItSaysWhatItIs(t *testing.T) {
	var errs bytes.Buffer
	if code := run("coelan-cni", func(string) string { return "" }, strings.NewReader(""), io.Discard, &errs); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !strings.HasPrefix(errs.String(), "coelan-cni ") || !strings.Contains(errs.String(), "1.1.0") {
		t.Errorf("said %q", errs.String())
	}
}

// Whatever is wrong with the agent, the runtime gets an error that says so, in time.
func TestAgentsThatDoNotAnswer(t *testing.T) {
	serve := func(fn func(conn net.Conn)) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			answerWith(t, path, func(_ []byte, conn net.Conn) { fn(conn) })
		}
	}
	text := func(answer string) func(*testing.T, string) {
		return serve(func(conn net.Conn) { fmt.Fprint(conn, answer) })
	}
	header := "HTTP/1.0 200 OK\r\n" + wire.Header + ": " + wire.Version + "\r\n"
	for _, tt := range []struct {
		name       string
		agent      func(*testing.T, string)
		code       uint // of ADD
		statusCode uint
		want       string
	}{
		{"none", func(*testing.T, string) {}, 11, 50, "cannot be reached on "},
		{"dead", func(t *testing.T, path string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			l.Close()
		}, 11, 50, "connection refused"},
		{"hangs before it accepts", func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}, 11, 50, "did not answer on "},
		{"hangs", func(t *testing.T, path string) {
			release := make(chan struct{})
			answerWith(t, path, func([]byte, net.Conn) { <-release })
			t.Cleanup(func() { close(release) })
		}, 11, 50, "did not answer on "},
		{"hangs in the middle", func(t *testing.T, path string) {
			release := make(chan struct{})
			answerWith(t, path, func(_ []byte, conn net.Conn) { fmt.Fprint(conn, header); <-release })
			t.Cleanup(func() { close(release) })
		}, 11, 50, "did not answer on "},
		{"ends", serve(func(net.Conn) {}), 11, 50, "ended while it was asked"},
		{"garbage", text("220 mail.example.org ESMTP\r\n"), 5, 5, "not HTTP"},
		{"binary garbage", text("\x00\xff\x00"), 5, 5, "not HTTP"},
		{"another HTTP server", text("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"), 5, 5, "no header Coelan-Cni: 1"},
		{"cut off", text(header + "Content-Length: 20\r\n\r\n{}"), 5, 5, "cut off"},
		{"not JSON", text(header + "Content-Length: 5\r\n\r\nhello"), 5, 5, "not JSON"},
		{"error without a code", serve(func(conn net.Conn) { reply(conn, "500 Internal Server Error", `{"msg":"x"}`) }), 5, 5, "failed without saying why"},
		{"error", serve(func(conn net.Conn) {
			reply(conn, "500 Internal Server Error", `{"cniVersion":"1.1.0","code":8,"msg":"netns","details":"is gone"}`)
		}), 8, 8, "netns: is gone"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := socketPath(t)
			tt.agent(t, path)
			conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"coelan","socket":%q,"timeout":0.2}`, path)
			for command, code := range map[string]uint{"ADD": tt.code, "STATUS": tt.statusCode} {
				start := time.Now()
				exit, out := runPlugin(t, map[string]string{"CNI_COMMAND": command}, conf)
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("%s took %v", command, took)
				}
				var e wire.Error
				if err := json.Unmarshal([]byte(out), &e); err != nil || exit != 1 {
					t.Fatalf("%s: exit code %d, output %q: %v", command, exit, out, err)
				}
				if e.Code != code || e.CNIVersion != "1.1.0" || !strings.Contains(e.Error(), tt.want) {
					t.Errorf("%s: %s\nwant code %d and %q", command, out, code, tt.want)
				}
			}
		})
	}
}

// An agent that is being restarted has no socket, or a dead one, for a moment.
func TestWaitsForAnAgentThatRestarts(t *testing.T) {
	for _, dead := range []bool{false, true} {
		path := socketPath(t)
		if dead {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			l.Close()
		}
		result := make(chan string)
		go func() {
			_, out := runPlugin(t, addEnv, fmt.Sprintf(`{"cniVersion":"1.1.0","socket":%q,"timeout":20}`, path))
			result <- out
		}()
		select {
		case out := <-result:
			t.Fatalf("did not wait: %s", out)
		case <-time.After(100 * time.Millisecond):
		}
		// As the agent does: the name appears when connections are taken.
		answerWith(t, path+".new", func(_ []byte, conn net.Conn) { reply(conn, "200 OK", `{}`) })
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		if out := <-result; out != `{}` {
			t.Errorf("dead %v: %s", dead, out)
		}
	}
}

func TestConfigurationThatCannotBeRead(t *testing.T) {
	for _, conf := range []string{"", "{", "[]", `{"socket":1}`, `{"timeout":"1s"}`} {
		code, out := runPlugin(t, addEnv, conf)
		if code != 1 || !strings.Contains(out, `"code": 6`) || !strings.Contains(out, `"cniVersion": "1.1.0"`) {
			t.Errorf("configuration %q: exit code %d, output %s", conf, code, out)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package apiaccess

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDamagedFile(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "cut off": `{"current":["192.0.2`, "another form": `{"current":{"a":1}}`, "no JSON": "\x00\xff",
		"no address": `{"current":["192.0.2.1:6443","nothing"]}`, "no port": `{"current":["192.0.2.1"]}`,
		"a port that is none": `{"former":["192.0.2.1:0"]}`, "no name": `{"kubelet":"a b:1"}`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "endpoints.json")
			write(t, file, text)
			var log strings.Builder
			a := New(Options{File: file, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if !a.known.equal(endpoints{}) || !strings.Contains(log.String(), file) {
				t.Errorf("known %+v, log %q, want nothing known and a warning with the path", a.known, log.String())
			}
			a.know("192.0.2.1:6443")
			if again := New(quiet(Options{File: file})); !slices.Equal(again.known.Current, []string{"192.0.2.1:6443"}) {
				t.Errorf("%+v after a new endpoint and a restart", again.known)
			}
		})
	}
}

func TestFileThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	a := New(quiet(Options{File: filepath.Join(file, "endpoints.json")}))
	a.know("192.0.2.1:6443")
	if got := a.addresses(); !slices.Contains(got, "192.0.2.1:6443") {
		t.Errorf("%v without the endpoint that is known", got)
	}
}

func TestKubeconfigs(t *testing.T) {
	for name, tc := range map[string]struct{ text, want, err string }{
		"an address":         {text: kubeconfigOf("https://192.0.2.1:6443"), want: "192.0.2.1:6443"},
		"a name":             {text: kubeconfigOf("https://api.example.org"), want: "api.example.org:443"},
		"IPv6":               {text: kubeconfigOf("https://[2001:db8::1]:6443/"), want: "[2001:db8::1]:6443"},
		"loopback":           {text: kubeconfigOf("https://127.0.0.1:6443"), want: "127.0.0.1:6443"},
		"no context":         {text: strings.Replace(kubeconfigOf("https://a.example.org"), "current-context: c", "", 1), want: "a.example.org:443"},
		"files beside":       {text: kubeconfigOf("https://a.example.org") + "users: [{name: u, user: {client-certificate: /none}}]\n", want: "a.example.org:443"},
		"empty":              {text: "", err: "0 clusters"},
		"no YAML":            {text: "\t{", err: "is no kubeconfig"},
		"without TLS":        {text: kubeconfigOf("http://192.0.2.1:6443"), err: "not https"},
		"a path":             {text: kubeconfigOf("https://192.0.2.1/k8s/clusters/c1"), err: "a path"},
		"no server":          {text: kubeconfigOf(""), err: "not https"},
		"no URL":             {text: kubeconfigOf("https://[::1"), err: "cannot be read"},
		"port 0":             {text: kubeconfigOf("https://192.0.2.1:0"), err: "no address"},
		"a context too many": {text: strings.Replace(kubeconfigOf("https://a"), "{cluster: k}", "{cluster: x}", 1), err: `no cluster "x"`},
	} {
		got, err := parseServer([]byte(tc.text))
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %q, %v, want %q, %q", name, got, err, tc.want, tc.err)
		}
	}
}

func FuzzParseServer(f *testing.F) {
	for _, s := range []string{"https://192.0.2.1:6443", "https://[2001:db8::1]", "https://%zz", ""} {
		f.Add([]byte(kubeconfigOf(s)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if server, err := parseServer(data); err == nil && !validAddress(server) {
			t.Errorf("%q can be read and not be dialed", server)
		}
	})
}

func kubeconfigOf(server string) string {
	return `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k}}]
clusters: [{name: k, cluster: {server: "` + server + `"}}]
`
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestExplicit(t *testing.T) {
	for name, tc := range map[string]struct {
		host, port string
		want       bool
	}{
		"by kubelet":             {"10.96.0.1", "tcp://10.96.0.1:443", false},
		"by kubelet, IPv6":       {"fd00::1", "tcp://[fd00::1]:443", false},
		"by a ConfigMap":         {"api.example.org", "tcp://10.96.0.1:443", true},
		"not in a pod":           {"", "", false},
		"no variable of a pod's": {"192.0.2.1", "", false},
	} {
		t.Setenv("KUBERNETES_SERVICE_HOST", tc.host)
		t.Setenv("KUBERNETES_PORT", tc.port)
		if got := ExplicitInPod(); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

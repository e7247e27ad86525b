// SPDX-License-Identifier: Apache-2.0

package target

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/internal/watcher/coe"
	"coelan.io/coelan/internal/watcher/mirror"
)

var (
	ref   = mirror.Ref{List: coe.Pods, Key: "a/b c"}
	entry = coe.Entry{"uid": "a/b c", "name": "web"}
)

// controller answers with what is set, and notes what it is asked.
type controller struct {
	status int
	answer string
	asked  []string
}

func (c *controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	user, password, _ := r.BasicAuth()
	c.asked = append(c.asked, fmt.Sprint(r.Method, " ", r.URL.EscapedPath(), " ", r.URL.RawQuery, " ", r.Header.Get("Content-Type"), " ", user, ":", password, " ", string(body)))
	if c.status/100 == 3 {
		w.Header().Set("Location", "/elsewhere")
	}
	if r.URL.Path == "/elsewhere" {
		return // 200
	}
	w.WriteHeader(c.status)
	_, _ = io.WriteString(w, c.answer)
}

func connect(t *testing.T, c *controller, root string) *RESTCONF {
	t.Helper()
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	r, err := NewRESTCONF(Access{URL: s.URL, Root: root, Username: "admin", Password: "secret"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRequests(t *testing.T) {
	for root, want := range map[string][]string{
		"/restconf/config": {
			`GET /restconf/config/pod:coe   admin:secret `,
			`PUT /restconf/config/pod:coe/pods/a%2Fb%20c  application/json admin:secret {"pod:pods":[{"name":"web","uid":"a/b c"}]}`,
			`DELETE /restconf/config/pod:coe/pods/a%2Fb%20c   admin:secret `,
		},
		"/rests/data/": {
			`GET /rests/data/pod:coe content=config  admin:secret `,
			`PUT /rests/data/pod:coe/pods=a%2Fb%20c  application/yang-data+json admin:secret {"pod:pods":[{"name":"web","uid":"a/b c"}]}`,
			`DELETE /rests/data/pod:coe/pods=a%2Fb%20c   admin:secret `,
		},
	} {
		c := &controller{status: 200, answer: `{"pod:coe":{"pods":[{"uid":"a","cluster-id":"c"}]}}`}
		r := connect(t, c, root)
		all, err := r.Read(t.Context(), coe.Pods)
		if err != nil || len(all) != 1 || all["a"].Cluster != "c" {
			t.Errorf("%s: read %v, %v", root, all, err)
		}
		if err := errors.Join(r.Put(t.Context(), ref, entry), r.Delete(t.Context(), ref)); err != nil {
			t.Errorf("%s: %v", root, err)
		}
		if !slices.Equal(c.asked, want) {
			t.Errorf("%s: asked\n%s\nwant\n%s", root, strings.Join(c.asked, "\n"), strings.Join(want, "\n"))
		}
	}
}

// An entry is refused, or the controller is out of reach, and the error has its words.
func TestStatuses(t *testing.T) {
	const fine, refuse, reach = "fine", "refuse", "reach"
	for status, want := range map[int][3]string{ // of Read, Put, Delete
		200: {fine, fine, fine}, 201: {fine, fine, fine}, 204: {fine, fine, fine}, 404: {fine, refuse, fine},
		301: {reach, reach, reach}, 307: {reach, reach, reach},
		400: {fine, refuse, refuse}, 405: {fine, refuse, refuse}, 501: {fine, refuse, refuse}, 409: {reach, refuse, refuse}, 500: {reach, refuse, refuse},
		401: {reach, reach, reach}, 403: {reach, reach, reach}, 429: {reach, reach, reach}, 503: {reach, reach, reach},
	} {
		c := &controller{status: status, answer: "{}"}
		if status/100 != 2 {
			c.answer = "the  data\nis " + strings.Repeat("bad", 1000)
		}
		r := connect(t, c, "/restconf/config")
		_, read := r.Read(t.Context(), coe.Pods)
		for i, err := range []error{read, r.Put(t.Context(), ref, entry), r.Delete(t.Context(), ref)} {
			got := reach
			switch {
			case err == nil:
				got = fine
			case errors.As(err, new(*mirror.RefusedError)):
				got = refuse
			}
			if got != want[i] {
				t.Errorf("%d, request %d: %s (%v), want %s", status, i, got, err, want[i])
			}
			if err != nil && (!strings.Contains(err.Error(), "the data is bad") || !strings.Contains(err.Error(), fmt.Sprint(status)) || len(err.Error()) > 700) {
				t.Errorf("%d: error %v", status, err)
			}
		}
	}
	gone := connect(t, &controller{}, "/restconf/config")
	gone.base = "http://127.0.0.1:1"
	if err := gone.Put(t.Context(), ref, entry); err == nil || errors.As(err, new(*mirror.RefusedError)) {
		t.Errorf("nothing listens: %v", err)
	}
	bad := connect(t, &controller{status: 200, answer: "<html>"}, "/restconf/config")
	if _, err := bad.Read(t.Context(), coe.Pods); err == nil {
		t.Error("an answer that is no JSON is taken")
	}
}

func TestTLS(t *testing.T) {
	c := &controller{status: 200, answer: "{}"}
	s := httptest.NewTLSServer(c)
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, works := range map[string]bool{ca: true, "": false} {
		r, err := NewRESTCONF(Access{URL: s.URL, Root: "/rests/data", CAFile: file}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Put(t.Context(), ref, entry); (err == nil) != works {
			t.Errorf("authorities %q: %v", file, err)
		}
	}
}

func TestBadAccess(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, a := range map[string]Access{
		"want http://HOST:PORT or":   {URL: "odl:8181", Root: "/restconf/config"},
		`host "http://"`:             {URL: "http://", Root: "/restconf/config"},
		`host "https://odl/restconf`: {URL: "https://odl/restconf", Root: "/restconf/config"},
		`host "http://odl?x=1"`:      {URL: "http://odl?x=1", Root: "/restconf/config"},
		`root "restconf"`:            {URL: "http://odl", Root: "restconf"},
		"no such file":               {URL: "http://odl", Root: "/restconf/config", CAFile: "/none"},
		"has no certificate":         {URL: "http://odl", Root: "/restconf/config", CAFile: empty},
	} {
		if _, err := NewRESTCONF(a, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", a, err, want)
		}
	}
	for host, plain := range map[string]bool{"http://odl:8181": true, "https://odl": false, "http://127.0.0.1:8181": false, "http://[::1]": false, "http://localhost": false} {
		if r, err := NewRESTCONF(Access{URL: host, Root: "/x"}, 1); err != nil || r.PlainText() != plain {
			t.Errorf("%s: %v; plain text must be %t", host, err, plain)
		}
	}
}

func TestPrinter(t *testing.T) {
	out := &bytes.Buffer{}
	p := NewPrinter(out)
	text, err := ref.List.Text(entry)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Put(t.Context(), ref, entry); err != nil {
		t.Fatal(err)
	}
	if all, err := p.Read(t.Context(), coe.Pods); err != nil || all[ref.Key].Text != text {
		t.Errorf("read %v, %v", all, err)
	}
	for range 2 {
		if err := p.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"method":"PUT","path":"/pod:coe/pods=a/b c","entry":{"name":"web","uid":"a/b c"}}` + "\n" + `{"method":"DELETE","path":"/pod:coe/pods=a/b c"}` + "\n"
	if out.String() != want {
		t.Errorf("printed\n%s, want\n%s", out, want)
	}
}

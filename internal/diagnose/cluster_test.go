// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
)

// printed is an API server's answer to a command that prints text and succeeds. A broken
// connection ends before it says so.
func printed(t *testing.T, w http.ResponseWriter, r *http.Request, text string, broken bool) {
	const status = `{"metadata":{},"status":"Success"}`
	up := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if err := conn.WriteMessage(websocket.BinaryMessage, []byte("\x01"+text)); err != nil {
		t.Error(err)
	}
	if broken {
		return
	}
	if err := conn.WriteMessage(websocket.BinaryMessage, []byte("\x03"+status)); err != nil {
		t.Error(err)
	}
	end := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	if err := conn.WriteMessage(websocket.CloseMessage, end); err != nil {
		t.Error(err)
	}
}

// Policies come from a controller that is Ready and gives an answer that can be read. If there is
// none, the error says of each why.
func TestPoliciesOfTheControllerThatAnswers(t *testing.T) {
	pod := func(name, ready string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"status":{"conditions":[{"type":"Ready","status":%q}]}}`, name, ready)
	}
	const garbage, good = "<html>", `[{"nodes":3}]`
	for name, tc := range map[string]struct {
		pods string
		err  string
	}{
		"the second can be read": {pods: pod("starting", "False") + "," + pod("odd", "True") + "," + pod("good", "True")},
		"none can be read": {pods: pod("odd", "True"),
			err: "controller (pod coelan-system/odd): answer to /v1/policies: invalid character"},
		"none is ready": {pods: pod("starting", "False"), err: "namespace coelan-system has no controller that is Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch pods := "/api/v1/namespaces/coelan-system/pods"; r.URL.Path {
				case pods:
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","items":[%s]}`, tc.pods)
				case pods + "/odd/exec":
					printed(t, w, r, garbage, false)
				case pods + "/good/exec":
					printed(t, w, r, good, false)
				default:
					t.Errorf("a request for %s", r.URL)
				}
			}))
			defer server.Close()
			c, err := NewCluster(&rest.Config{Host: server.URL}, "coelan-system")
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Policies(t.Context())
			if tc.err == "" && (err != nil || len(got) != 1) {
				t.Errorf("got %+v and error %v, want those of the controller that can be read", got, err)
			}
			if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got error %v, want one with %q", err, tc.err)
			}
		})
	}
}

// An API server that closes the connection of a command too early is asked once more,
// and not forever.
func TestExecAgainAfterABrokenConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		broken int32
		want   string
		err    string
		asked  int32
	}{
		"no connection breaks":    {0, "answer", "", 1},
		"the first one breaks":    {1, "answer", "", 2},
		"every connection breaks": {9, "", "close 1006", execAttempts},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				printed(t, w, r, "answer", asked.Add(1) <= tc.broken)
			}))
			defer server.Close()
			c, err := NewCluster(&rest.Config{Host: server.URL}, "coelan-system")
			if err != nil {
				t.Fatal(err)
			}
			out, err := c.exec(t.Context(), "agent", []string{"query"})
			if tc.err == "" && (err != nil || string(out) != tc.want) {
				t.Errorf("got %q and error %v, want %q", out, err, tc.want)
			}
			if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got error %v, want one with %q", err, tc.err)
			}
			if asked.Load() != tc.asked {
				t.Errorf("the API server was asked %d times, want %d", asked.Load(), tc.asked)
			}
		})
	}
}

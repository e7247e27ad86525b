// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
)

// An API server that closes the connection of a command too early is asked once more,
// and not forever.
func TestExecAgainAfterABrokenConnection(t *testing.T) {
	const status = `{"metadata":{},"status":"Success"}`
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
				nth := asked.Add(1)
				up := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
				conn, err := up.Upgrade(w, r, nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				if err := conn.WriteMessage(websocket.BinaryMessage, []byte("\x01answer")); err != nil {
					t.Error(err)
				}
				if nth <= tc.broken {
					return
				}
				if err := conn.WriteMessage(websocket.BinaryMessage, []byte("\x03"+status)); err != nil {
					t.Error(err)
				}
				end := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
				if err := conn.WriteMessage(websocket.CloseMessage, end); err != nil {
					t.Error(err)
				}
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

// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/mapping"
)

const runningStream = "/restconf/streams/running"

// streaming has the site read for streams until end is called.
func (s *site) streaming() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.h.(*handler).streams.run(ctx) }()
	end = func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	}
	s.Cleanup(cancel)
	return end
}

// listener is a client of a stream.
type listener struct {
	*testing.T
	lines  *bufio.Scanner
	answer *http.Response
	close  func()
}

// listen opens a stream. It fails if that has not begun after a while.
func (s *site) listen(server *httptest.Server, token, path string) *listener {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	s.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", server.URL+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", eventStream)
	answer, err := server.Client().Do(r)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { answer.Body.Close() })
	l := &listener{T: s.T, lines: bufio.NewScanner(answer.Body), answer: answer, close: cancel}
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != eventStream {
		s.Fatalf("%d %s", answer.StatusCode, answer.Header.Get("Content-Type"))
	}
	return l
}

// edits are those of the next notification: "operation target value".
func (l *listener) edits() []string {
	l.Helper()
	for l.lines.Scan() {
		text, ok := strings.CutPrefix(l.lines.Text(), "data: ")
		if !ok {
			continue
		}
		var message struct {
			Notification struct {
				EventTime time.Time `json:"eventTime"`
				Update    struct {
					Changes struct {
						Patch struct {
							Edit []edit `json:"edit"`
						} `json:"yang-patch"`
					} `json:"datastore-changes"`
				} `json:"ietf-yang-push:push-change-update"`
			} `json:"ietf-restconf:notification"`
		}
		if err := json.Unmarshal([]byte(text), &message); err != nil {
			l.Fatalf("%v: %s", err, text)
		}
		if message.Notification.EventTime.IsZero() {
			l.Errorf("no time: %s", text)
		}
		var list []string
		for _, e := range message.Notification.Update.Changes.Patch.Edit {
			list = append(list, strings.TrimSpace(fmt.Sprint(e.Operation, " ", e.Target, " ", string(e.Value))))
		}
		return list
	}
	l.Fatalf("the stream has ended: %v", l.lines.Err())
	return nil
}

// gets expects these edits, in one notification or several.
func (l *listener) gets(want ...string) {
	l.Helper()
	for len(want) > 0 {
		for _, got := range l.edits() {
			if len(want) == 0 || got != want[0] {
				l.Fatalf("got  %s\nwant %s", got, want)
			}
			want = want[1:]
		}
	}
}

// both are a server of HTTP/1.1 and one of HTTP/2.
func (s *site) both() map[string]*httptest.Server {
	second := httptest.NewUnstartedServer(s.h)
	second.EnableHTTP2 = true
	second.StartTLS()
	all := map[string]*httptest.Server{"HTTP/1.1": httptest.NewServer(s.h), "HTTP/2.0": second}
	for _, server := range all {
		s.Cleanup(server.Close)
	}
	return all
}

func TestBadStreams(t *testing.T) {
	s := newSite(t)
	s.streaming()
	for name, c := range map[string]struct {
		token, method, path, accept string
		code                        int
		tag, says                   string
	}{
		"no credentials":    {"", "GET", runningStream, "", 401, "access-denied", "credentials"},
		"no rights":         {"ports-a", "GET", runningStream, "", 403, "access-denied", "may list nothing"},
		"unknown":           {"admin", "GET", "/restconf/streams/NETCONF", "", 404, "invalid-value", "no such"},
		"no name":           {"admin", "GET", "/restconf/streams/", "", 404, "invalid-value", "no such"},
		"all":               {"admin", "GET", "/restconf/streams", "", 404, "invalid-value", "no such"},
		"slash in the name": {"admin", "GET", "/restconf/streams/running%2Fx", "", 404, "invalid-value", "no such"},
		"POST":              {"admin", "POST", runningStream, "", 405, "operation-not-supported", "POST"},
		"HEAD":              {"admin", "HEAD", runningStream, "", 405, "", ""},
		"JSON":              {"admin", "GET", runningStream, "application/yang-data+json", 406, "invalid-value", "text/event-stream"},
		"none":              {"admin", "GET", runningStream, "text/event-stream;q=0", 406, "invalid-value", "text/event-stream"},
		"replay":            {"admin", "GET", runningStream + "?start-time=2014-10-25T10%3A02%3A00Z", "", 400, "invalid-value", "no replay"},
		"filter":            {"admin", "GET", runningStream + "?filter=%2Fa", "", 400, "invalid-value", "no filter"},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.as(c.token, c.method, c.path, "", "Accept", c.accept)
			if c.method == "HEAD" && got.code == c.code {
				return
			}
			got.refuses(t, c.code, c.tag, c.says)
		})
	}
	if got := s.want(200, "OPTIONS", runningStream, "").head.Get("Allow"); got != "GET, OPTIONS" {
		t.Error(got)
	}
}

// TestStreamsList has the paths of RFC 8040, section 6.2.
func TestStreamsList(t *testing.T) {
	s := newSite(t)
	const state = "/restconf/data/ietf-restconf-monitoring:restconf-state"
	running := `{"name":"running","description":"Changes of the configuration","replay-support":false,"access":[{"encoding":"json","location":"https://example.com/restconf/streams/running"}]}`
	for path, want := range map[string]string{
		state + "/streams/stream=running":                      `{"ietf-restconf-monitoring:stream":[` + running + `]}`,
		state + "/streams/stream=running/access=json/location": `{"ietf-restconf-monitoring:location":"https://example.com/restconf/streams/running"}`,
		state + "/capabilities/":                               `{"ietf-restconf-monitoring:capabilities":{"capability":["urn:ietf:params:restconf:capability:depth:1.0","urn:ietf:params:restconf:capability:fields:1.0","urn:ietf:params:restconf:capability:defaults:1.0?basic-mode=explicit"]}}`,
	} {
		s.same(s.want(200, "GET", path, "").body, want)
	}
	for _, path := range []string{state, state + "/streams"} {
		if got := s.want(200, "GET", path, "").body; !strings.Contains(got, "streams/running") || !strings.Contains(got, "streams/operational") {
			t.Error(got)
		}
	}
	for _, path := range []string{"/streams/stream=NETCONF", "/streams/stream=running/access=xml/location", "/streams/stream/name", "s", "capabilities", "/streams=a"} {
		s.want(404, "GET", state+path, "")
	}
}

// TestStream has changes of the configuration, made by RESTCONF and others, and of state.
func TestStream(t *testing.T) {
	for name := range newSite(t).both() {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.streaming()
			s.want(201, "PUT", "/restconf/data/l3vpn:vpn-instances/vpn-instance=old", `{"l3vpn:vpn-instance":[{"vpn-instance-name":"old"}]}`)
			server := s.both()[name]
			running, operational := s.listen(server, "admin", runningStream), s.listen(server, "reader", "/rests/streams/operational")
			if running.answer.Proto != name {
				t.Errorf("by %s", running.answer.Proto)
			}
			const lan, path = "/elan:elan-instances/elan-instance=lan", "/restconf/data/elan:elan-instances/elan-instance=lan"
			s.want(201, "PUT", path, `{"elan:elan-instance":[{"elan-instance-name":"lan","segment-type":"elan:segment-type-vxlan"}]}`)
			created := "create " + lan + ` {"elan:elan-instance":[{"elan-instance-name":"lan","segment-type":"elan:segment-type-vxlan"}]}`
			network := func(operation, status string) string {
				return operation + ` /coelan:networks/network=lan {"coelan:network":[{"ipam":"blocks","name":"lan","role":"secondary",` + status + `"type":"overlay"}]}`
			}
			running.gets(network("create", ""), created)
			operational.gets(network("create", ""), created)
			n := s.api.world.Networks["lan"].DeepCopy()
			n.Status.VNI = 70001
			if err := s.api.Commit(t.Context(), []mapping.Change{{Verb: mapping.Update, Resource: mapping.Networks, Object: n}}); err != nil {
				t.Fatal(err)
			}
			operational.gets(network("replace", `"status":{"vni":70001},`), "replace "+lan+` {"elan:elan-instance":[{"elan-instance-name":"lan","segment-type":"elan:segment-type-vxlan","segmentation-id":70001}]}`)
			s.want(204, "DELETE", path, "")
			s.want(204, "DELETE", "/restconf/data/l3vpn:vpn-instances/vpn-instance=old", "")
			for _, l := range []*listener{running, operational} {
				l.gets("delete /coelan:networks/network=lan", "delete /coelan:routers/router=old", "delete "+lan, "delete /l3vpn:vpn-instances/vpn-instance=old")
			}
		})
	}
}

// TestStreamOfOneNamespace has a client that may read Ports of one namespace alone, beside one that
// may read all.
func TestStreamOfOneNamespace(t *testing.T) {
	s := newSite(t)
	s.streaming()
	s.api.put(&v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one"}, Spec: v1alpha1.PortSpec{Network: "lan"}}, false)
	server := s.both()["HTTP/1.1"]
	l, all := s.listen(server, "ports-a", runningStream), s.listen(server, "admin", runningStream)
	const path = "/restconf/data/elan:elan-interfaces"
	entry := func(name string) string {
		return `{"elan:elan-interface":[{"name":"` + name + `","elan-instance-name":"lan"}]}`
	}
	s.want(201, "POST", path, entry("b:two"))
	s.want(201, "PUT", "/restconf/data/l3vpn:vpn-instances/vpn-instance=red", `{"l3vpn:vpn-instance":[{"vpn-instance-name":"red"}]}`)
	s.want(204, "DELETE", path+"/elan-interface=a%3Aone", "")
	for seen := ""; !strings.Contains(seen, "delete /elan:elan-interfaces/elan-interface=a%3Aone"); {
		seen += strings.Join(all.edits(), "\n") + "\n"
		if strings.Contains(seen, "a%3Aone") && !strings.Contains(seen, "create /elan:elan-interfaces/elan-interface=b%3Atwo") {
			t.Errorf("the other client got %s", seen)
		}
	}
	gone := l.edits()
	if len(gone) != 5 {
		t.Errorf("got %q", gone)
	}
	for i, of := range []string{"/coelan:ports/port=a,one", "/elan:elan-interfaces/elan-interface=a%3Aone", "/ietf-interfaces:interfaces/interface=a%3Aone", "/l3vpn:vpn-interfaces/vpn-interface=a%3Aone", "/pod:coe/pods="} {
		if !strings.HasPrefix(gone[i], "delete "+of) {
			t.Errorf("got %q, want deletion of %s", gone[i], of)
		}
	}
	// It goes on, also if the client sees nothing at present.
	s.want(201, "POST", path, entry("a:three"))
	if got := l.edits(); !strings.Contains(strings.Join(got, " "), "a%3Athree") || strings.Contains(strings.Join(got, " "), "port=b") || strings.Contains(strings.Join(got, " "), "b%3A") {
		t.Errorf("got %q", got)
	}
}

// TestStreamEnds says why a stream ends.
func TestStreamEnds(t *testing.T) {
	s := newSite(t)
	end := s.streaming()
	l := s.listen(s.both()["HTTP/1.1"], "admin", runningStream)
	end()
	last := ""
	for l.lines.Scan() {
		if l.lines.Text() != "" {
			last = l.lines.Text()
		}
	}
	if l.lines.Err() != nil || last != ": ended: the server is ending" {
		t.Errorf("%q, %v", last, l.lines.Err())
	}
	s.do("GET", runningStream, "").refuses(t, 503, "resource-denied", "ending")
}

// TestStreamsAreBounded opens more streams than a user may have.
func TestStreamsAreBounded(t *testing.T) {
	s := newSite(t)
	s.streaming()
	server := s.both()["HTTP/2.0"]
	var all []*listener
	for range maxUserStreams {
		all = append(all, s.listen(server, "admin", runningStream))
	}
	s.do("GET", runningStream, "").refuses(t, 429, "resource-denied", "streams already")
	s.listen(server, "reader", runningStream)
	all[0].close()
	for {
		s.h.(*handler).streams.mu.Lock()
		left := s.h.(*handler).streams.users["admin"] < maxUserStreams
		s.h.(*handler).streams.mu.Unlock()
		if left {
			break
		}
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the stream that was closed counts")
		}
	}
	s.listen(server, "admin", runningStream)
	// All users together.
	h := s.h.(*handler)
	for i := range maxStreams {
		if _, _, err := h.streams.join(fmt.Sprint("user", i)); err != nil {
			if i < maxStreams/2 {
				t.Errorf("refused after %d: %v", i, err)
			}
			return
		}
	}
	t.Errorf("more than %d streams", maxStreams)
}

// stuck is a connection that does not take more than a number of writes.
type stuck struct {
	http.ResponseWriter
	left          int
	read, written []time.Time
}

func (w *stuck) Write(p []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return len(p), nil
}
func (w *stuck) Flush() {}
func (w *stuck) SetReadDeadline(t time.Time) error {
	w.read = append(w.read, t)
	return nil
}

func (w *stuck) SetWriteDeadline(t time.Time) error {
	w.written = append(w.written, t)
	return nil
}

// TestSlowClient is cut off, so that it does not look like an end of the stream. The server's own
// deadlines for requests are not for streams.
func TestSlowClient(t *testing.T) {
	s := newSite(t)
	s.streaming()
	w := &stuck{ResponseWriter: httptest.NewRecorder(), left: 1}
	r := httptest.NewRequest("GET", runningStream, nil)
	r.Header.Set("Authorization", "Bearer admin")
	cut := make(chan any, 1)
	go func() {
		defer func() { cut <- recover() }()
		s.h.ServeHTTP(w, r)
	}()
	// The stream is there before the write, or its first entries have this one.
	for i := 0; ; i++ {
		s.do("PUT", "/restconf/data/l3vpn:vpn-instances/vpn-instance=red", fmt.Sprintf(`{"l3vpn:vpn-instance":[{"vpn-instance-name":"red","ipv4-family":{"route-distinguisher":["1:%d"]}}]}`, i))
		select {
		case what := <-cut:
			if err, ok := what.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				t.Errorf("ended with %v", what)
			}
		case <-time.After(10 * time.Millisecond):
			continue
		}
		break
	}
	if len(w.read) != 1 || !w.read[0].IsZero() || len(w.written) != 2 || w.written[0].IsZero() {
		t.Errorf("deadlines of reads %v, of writes %v", w.read, w.written)
	}
	if n := s.h.(*handler).streams.total; n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

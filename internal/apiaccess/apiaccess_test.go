// SPDX-License-Identifier: Apache-2.0

package apiaccess

import (
	"context"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits for what has to happen.
const patience = 30 * time.Second

// configuredHost is in httptest's certificate, and nothing answers there.
const configuredHost = "https://example.com:6443"

// apiServer answers over TLS with its name.
func apiServer(t *testing.T, network, listen, name string) *httptest.Server {
	t.Helper()
	l, err := net.Listen(network, listen)
	if err != nil {
		t.Skipf("%s: %v", listen, err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(name))
	}))
	s.Listener = l
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func addressOf(s *httptest.Server) string { return s.Listener.Addr().String() }

// deadAddress is one at which nothing listens any more.
func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// authority is that of httptest's certificate.
func authority(t *testing.T) []byte {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// client is an HTTP client as client-go makes them, by way of Access.
func client(t *testing.T, a *Access, host string) *http.Client {
	t.Helper()
	// Nothing but the endpoints can be reached: no test depends on the network around it.
	dial := a.dial
	a.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if ip, _, _ := net.SplitHostPort(address); net.ParseIP(ip) == nil || !net.ParseIP(ip).IsLoopback() {
			return nil, &net.OpError{Op: "dial", Err: errors.New(address + " is away")}
		}
		return dial(ctx, network, address)
	}
	config := &rest.Config{Host: host, TLSClientConfig: rest.TLSClientConfig{CAData: authority(t)}}
	if err := a.Configure(config); err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func quiet(o Options) Options {
	o.Log = slog.New(slog.DiscardHandler)
	return o
}

func get(ctx context.Context, t *testing.T, c *http.Client, method string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, configuredHost+"/version", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	data := make([]byte, 100)
	n, _ := response.Body.Read(data)
	return string(data[:n]), nil
}

func slice(port string, addresses ...string) *discoveryv1.EndpointSlice {
	number := int32(6443)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubernetes", Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &port, Port: &number}},
	}
	for _, address := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	return s
}

// know has Access know endpoints.
func (a *Access) know(current ...string) {
	a.update(func(e endpoints) endpoints { return e.with(current) })
}

func TestFailsOverAmongEndpoints(t *testing.T) {
	for _, network := range []struct{ name, listen string }{{"tcp4", "127.0.0.1:0"}, {"tcp6", "[::1]:0"}} {
		t.Run(network.name, func(t *testing.T) {
			one, two := apiServer(t, network.name, network.listen, "one"), apiServer(t, network.name, network.listen, "two")
			a := New(quiet(Options{}))
			a.know(addressOf(one), addressOf(two), deadAddress(t))
			// A client of its own for each request: none has a connection already.
			ask := func() (string, error) {
				return get(t.Context(), t, client(t, a, configuredHost), http.MethodGet)
			}
			for _, gone := range []*httptest.Server{one, two} {
				if _, err := ask(); err != nil {
					t.Errorf("an endpoint is left: %v", err)
				}
				gone.Close()
			}
			if got, err := ask(); err == nil {
				t.Errorf("all endpoints are dead, and %q answers", got)
			} else if !strings.Contains(err.Error(), addressOf(one)) {
				t.Errorf("the error does not name the endpoints: %v", err)
			}
		})
	}
}

func TestServerWithoutPower(t *testing.T) {
	one := apiServer(t, "tcp", "127.0.0.1:0", "one")
	const silent = "192.0.2.1:6443"
	a := New(quiet(Options{}))
	dial := a.dial
	c := client(t, a, configuredHost)
	a.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == silent {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return dial(ctx, network, address)
	}
	a.Explicit, a.configured = true, "example.com:6443"
	a.know(silent, addressOf(one))
	a.failed["example.com:6443"] = time.Now()
	if got, err := get(t.Context(), t, c, http.MethodPut); err != nil || got != "one" {
		t.Errorf("%q, %v, want an answer of the one that lives", got, err)
	}
	if _, noted := a.failed[silent]; noted {
		t.Error("an address is taken for one that failed because another was faster")
	}
}

func TestCertificates(t *testing.T) {
	t.Run("verified by the configured name", func(t *testing.T) {
		one := apiServer(t, "tcp", "127.0.0.1:0", "one")
		a := New(quiet(Options{}))
		c := client(t, a, "https://another.test:6443")
		a.know(addressOf(one))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://another.test:6443/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Do(request)
		if err == nil {
			response.Body.Close()
			t.Error("a server without the configured name in its certificate is believed")
		}
	})
	t.Run("one that fails is not dialed first again", func(t *testing.T) {
		stranger := httptest.NewUnstartedServer(http.NotFoundHandler())
		one := apiServer(t, "tcp", "127.0.0.1:0", "one")
		a := New(quiet(Options{}))
		c := client(t, a, configuredHost)
		stranger.TLS = strangersTLS(t)
		stranger.StartTLS()
		defer stranger.Close()
		a.Explicit = true
		dial := a.dial
		a.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "example.com:6443" {
				address = addressOf(stranger)
			}
			return dial(ctx, network, address)
		}
		a.know(addressOf(one))
		if _, err := get(t.Context(), t, c, http.MethodGet); err == nil {
			t.Error("a stranger is believed")
		}
		if got, err := get(t.Context(), t, c, http.MethodGet); err != nil || got != "one" {
			t.Errorf("%q, %v, want an answer of the right one", got, err)
		}
	})
}

func TestReadsWaitForConnection(t *testing.T) {
	a := New(quiet(Options{}))
	c := client(t, a, configuredHost)
	a.know(deadAddress(t))
	if _, err := get(t.Context(), t, c, http.MethodGet); err == nil {
		t.Fatal("a read that does not wait is answered")
	}
	var failed *net.OpError
	if _, err := get(t.Context(), t, c, http.MethodGet); !errors.As(err, &failed) || failed.Op != "dial" {
		t.Errorf("%v is no failure to connect", err)
	}
	if _, err := get(WaitForConnection(t.Context()), t, c, http.MethodPut); err == nil {
		t.Error("a write waits")
	}
	select {
	case <-a.Unreachable():
	default:
		t.Error("nothing says that no API server can be reached")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := get(WaitForConnection(ctx), t, c, http.MethodGet); err == nil {
		t.Error("a read waits longer than its context")
	}
	answered := make(chan string, 1)
	go func() {
		bounded, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		got, err := get(WaitForConnection(bounded), t, c, http.MethodGet)
		answered <- got + errorText(err)
	}()
	one := apiServer(t, "tcp", "127.0.0.1:0", "one")
	a.know(addressOf(one))
	if got := <-answered; got != "one" {
		t.Errorf("after the return of an API server: %s", got)
	}
}

// An API server that has just returned refuses what it does not know the rights to yet.
func TestReadsWaitForRights(t *testing.T) {
	refusals := 2
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if refusals > 0 {
			refusals--
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte("one"))
	}))
	s.Listener = l
	s.StartTLS()
	defer s.Close()
	a := New(quiet(Options{}))
	c := client(t, a, configuredHost)
	a.know(addressOf(s))
	ask := func(ctx context.Context) string {
		got, err := get(ctx, t, c, http.MethodGet)
		return got + errorText(err)
	}
	wait := WaitForConnection(t.Context())
	if got := ask(wait); got != "" {
		t.Errorf("%q, want the refusal of an API server that was there all the time", got)
	}
	a.lost(errors.New("refused"))
	a.reached()
	refusals = 2
	if got := ask(t.Context()); got != "" {
		t.Errorf("%q, want the refusal of a read that does not wait", got)
	}
	if got := ask(wait); got != "one" {
		t.Errorf("%q, want the answer after the refusals", got)
	}
	a.returned = time.Now().Add(-time.Hour)
	refusals = 1
	if got := ask(wait); got != "" {
		t.Errorf("%q, want the refusal of an API server that has been back for long", got)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestOrder(t *testing.T) {
	dir := t.TempDir()
	kubelet, shared := filepath.Join(dir, "kubelet.conf"), filepath.Join(dir, "shared")
	write(t, kubelet, kubeconfigOf("https://lb.example.org:8443"))
	write(t, shared, `{"current":["192.0.2.3:6443"],"former":["192.0.2.4:6443"],"kubelet":"lb2.example.org:6443"}`)
	for name, tc := range map[string]struct {
		options       Options
		current       []string
		former        []string
		failed        string
		want          []string
		currentsFirst int
	}{
		"nothing known": {want: []string{"10.96.0.1:443"}},
		"a node that joins": {
			options: Options{Kubeconfigs: []string{filepath.Join(dir, "none"), kubelet}},
			want:    []string{"lb.example.org:8443", "10.96.0.1:443"},
		},
		"a controller on a node with an agent": {
			options: Options{SharedFile: shared},
			want:    []string{"192.0.2.3:6443", "lb2.example.org:6443", "10.96.0.1:443", "192.0.2.4:6443"},
		},
		"known": {
			options: Options{Kubeconfigs: []string{kubelet}, SharedFile: shared}, current: []string{"192.0.2.1:6443"}, former: []string{"192.0.2.9:6443"},
			want: []string{
				"192.0.2.1:6443", "lb.example.org:8443", "lb2.example.org:6443", "10.96.0.1:443", "192.0.2.9:6443", "192.0.2.3:6443",
				"192.0.2.4:6443",
			},
		},
		"set by an administrator": {
			options: Options{Explicit: true}, current: []string{"192.0.2.1:6443"}, want: []string{"10.96.0.1:443", "192.0.2.1:6443"},
		},
		"one that failed": {
			options: Options{Explicit: true}, current: []string{"192.0.2.1:6443"}, failed: "10.96.0.1:443",
			want: []string{"192.0.2.1:6443", "10.96.0.1:443"},
		},
	} {
		a := New(quiet(tc.options))
		a.configured, a.known = "10.96.0.1:443", endpoints{Current: tc.current, Former: tc.former}
		if tc.failed != "" {
			a.note(tc.failed, false)
		}
		if diff := cmp.Diff(tc.want, a.addresses()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	a := New(quiet(Options{}))
	a.know("192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1")
	first := map[string]bool{}
	for range 200 {
		first[a.addresses()[0]] = true
	}
	if len(first) != 3 {
		t.Errorf("only %v are ever dialed first: load is not spread", first)
	}
}

func TestProxyIsDialedAsItIs(t *testing.T) {
	a := New(quiet(Options{}))
	a.configured = "10.96.0.1:443"
	a.know("192.0.2.1:6443")
	var mu sync.Mutex
	var dialed []string
	a.dial = func(_ context.Context, _, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		dialed = append(dialed, address)
		return nil, errors.New("refused")
	}
	if _, err := a.Dial(t.Context(), "tcp", "proxy.example.org:3128"); err == nil || !slices.Equal(dialed, []string{"proxy.example.org:3128"}) {
		t.Errorf("dialed %v, %v", dialed, err)
	}
}

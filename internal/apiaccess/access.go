// SPDX-License-Identifier: Apache-2.0

// Package apiaccess connects agents and controllers to the API server without paths that Coelan
// itself programs. The ClusterIP of default/kubernetes is such a path: in native mode the agent
// programs it, so an agent that needed it could not repair it.
//
// Access is the dialer of client-go's transports. It dials the endpoints that the EndpointSlices of
// default/kubernetes name, which it watches and stores on disk; then the address in the kubeconfig
// of the node's kubelet; then the configured address. TLS still verifies the configured host name,
// so a connection to a wrong address fails.
package apiaccess

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
)

// Options are what Access works with.
type Options struct {
	Log *slog.Logger
	// File remembers the endpoints over restarts; empty: nothing is remembered. All users of the
	// node may read it.
	File string
	// SharedFile is the File of another process of the node, which is only read; empty: there is
	// none.
	SharedFile string
	// Kubeconfigs are paths where kubelet's kubeconfig may be. Only the address of the server is
	// used.
	Kubeconfigs []string
	// Explicit says that an administrator has set the configured address: it is dialed before the
	// others.
	Explicit bool
	// WaitForReads makes every request that reads wait for a connection, and not only those with a
	// context of WaitForConnection.
	WaitForReads bool
}

// Access dials the API servers of one cluster. Its methods are safe for concurrent use.
type Access struct {
	Options
	// dial makes one connection.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// stagger is the pause before the next address is dialed too, while one has not answered.
	stagger time.Duration
	// unreachable is closed when a request could not get a connection.
	unreachable chan struct{}

	saving sync.Mutex // held while File is written
	saved  endpoints  // what File holds

	mu         sync.Mutex
	configured string // HOST:PORT
	known      endpoints
	failed     map[string]time.Time
	away       bool // the last request could not get a connection
	returned   time.Time
}

// How soon a dead connection is noticed, and how long one address is dialed. A watch of a server
// that lost power must move to another one at once: new Services and policies wait for it.
const (
	keepAliveIdle     = 3 * time.Second
	keepAliveInterval = 2 * time.Second
	keepAliveCount    = 3
	// userTimeout bounds how long data that was sent may stay unacknowledged.
	userTimeout = 9 * time.Second
	dialTimeout = 5 * time.Second
	stagger     = 300 * time.Millisecond
)

// New reads what is remembered. Files that cannot be used are logged and left out.
func New(o Options) *Access {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	dialer := &net.Dialer{
		Timeout: dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
		},
		Control: boundUnacknowledged,
	}
	a := &Access{
		Options: o, dial: dialer.DialContext, stagger: stagger,
		unreachable: make(chan struct{}), failed: map[string]time.Time{},
	}
	if o.File != "" {
		known, err := load(o.File)
		if err != nil {
			o.Log.Warn("cannot read the saved endpoints of API servers", "err", err)
		}
		a.known, a.saved = known, known
	}
	return a
}

// boundUnacknowledged sets TCP_USER_TIMEOUT on a socket.
func boundUnacknowledged(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
			int(userTimeout/time.Millisecond))
	})
	return cmp.Or(err, failed)
}

// Configure has clients that are made from the configuration connect through Access. All
// configurations of one Access are for the same cluster.
func (a *Access) Configure(c *rest.Config) error {
	host, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.configured = hostPort(host)
	a.mu.Unlock()
	c.Dial = a.Dial
	c.Wrap(func(t http.RoundTripper) http.RoundTripper { return &transport{t, a} })
	a.update(func(e endpoints) endpoints { return e })
	return nil
}

// hostPort is the address that a client of the URL dials.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(port, "443"))
}

// Unreachable is closed when a request could not get a connection to any address.
func (a *Access) Unreachable() <-chan struct{} { return a.unreachable }

// ExplicitInPod says whether an administrator has set the API server's address in a pod's
// environment, where kubelet puts the ClusterIP of default/kubernetes. kubelet also puts it into
// another variable, by which the two are told apart.
func ExplicitInPod() bool {
	u, err := url.Parse(os.Getenv("KUBERNETES_PORT"))
	return err == nil && u.Hostname() != "" && u.Hostname() != os.Getenv("KUBERNETES_SERVICE_HOST")
}

// DetectDeadServers has client-go ask HTTP/2 connections that are silent for a sign of life more
// often than it does otherwise (30 s and 15 s). A load balancer keeps TCP connections to a server
// that is gone alive. client-go has no other way to set this than the environment; what is set
// there already stays.
func DetectDeadServers() error {
	for name, value := range map[string]string{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5", "HTTP2_PING_TIMEOUT_SECONDS": "4",
	} {
		if _, set := os.LookupEnv(name); set {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// addresses are what is dialed, in this order: an explicit address; the endpoints, in any order, so
// that load is spread; kubelet's server; the configured address; endpoints that were known before.
// Those that failed a moment ago are last.
func (a *Access) addresses() []string {
	kubelet := a.kubeletServer()
	var shared endpoints
	if a.SharedFile != "" {
		var err error
		if shared, err = load(a.SharedFile); err != nil {
			a.Log.Warn("cannot read the endpoints of API servers that the node's agent saved", "err", err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []string
	add := func(addresses ...string) {
		for _, address := range addresses {
			if address != "" && !slices.Contains(list, address) {
				list = append(list, address)
			}
		}
	}
	if a.Explicit {
		add(a.configured)
	}
	current := a.known.Current
	if len(current) == 0 {
		current = shared.Current
	}
	add(shuffled(current)...)
	add(kubelet, shared.Kubelet, a.configured)
	add(a.known.Former...)
	add(shared.Current...)
	add(shared.Former...)
	now := time.Now()
	recent := func(address string) int {
		if at, ok := a.failed[address]; ok && now.Sub(at) < failureMemory {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(x, y string) int { return cmp.Compare(recent(x), recent(y)) })
	return list
}

// failureMemory is how long an address that failed is dialed after those that did not.
const failureMemory = 30 * time.Second

// note remembers whether an address works.
func (a *Access) note(address string, works bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if works {
		delete(a.failed, address)
	} else {
		a.failed[address] = time.Now()
	}
}

type waitKey struct{}

// WaitForConnection returns a context that makes requests that read wait until there is a
// connection. It is for watches: after an error, client-go tries again at intervals that grow to a
// minute, and nothing new would be in effect that long after the API server's return.
func WaitForConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, waitKey{}, true)
}

// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/retry"
)

// healthChecks tell load balancers, at the port that a Service with a local policy has
// for it, whether this node has an endpoint: status 200 or 503, with the body and the
// headers that kube-proxy gives.
type healthChecks struct {
	log     *slog.Logger
	at      []netip.Prefix
	healthy func() error
	listen  func(address string) (net.Listener, error)

	mu     sync.Mutex
	checks map[string]*healthCheck // by namespace/name
	closed bool

	running sync.WaitGroup
}

// healthCheck is that of one Service.
type healthCheck struct {
	namespace, name string
	port            uint16
	stop            context.CancelFunc

	mu        sync.Mutex
	endpoints int
	err       error // why it does not serve
}

func newHealthChecks(log *slog.Logger, at []netip.Prefix, healthy func() error) *healthChecks {
	return &healthChecks{
		log: log, at: at, healthy: healthy, checks: map[string]*healthCheck{},
		listen: func(address string) (net.Listener, error) {
			var lc net.ListenConfig
			return lc.Listen(context.Background(), "tcp", address)
		},
	}
}

// update makes the checks those of these Services.
func (h *healthChecks) update(all iter.Seq[intent.NodeService]) {
	keep := map[string]bool{}
	for v := range all {
		keep[v.Namespace+"/"+v.Name] = true
		h.set(v)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, c := range h.checks {
		if !keep[key] {
			c.stop()
			delete(h.checks, key)
		}
	}
}

// set brings the check of one Service to what it is now.
func (h *healthChecks) set(v intent.NodeService) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key, port := v.Namespace+"/"+v.Name, v.HealthCheckNodePort
	if !v.ExternalLocal {
		port = 0
	}
	c := h.checks[key]
	if c != nil && c.port != port {
		c.stop()
		delete(h.checks, key)
		c = nil
	}
	if port == 0 || h.closed {
		return
	}
	if c == nil {
		c = &healthCheck{namespace: v.Namespace, name: v.Name, port: port}
		var ctx context.Context
		ctx, c.stop = context.WithCancel(context.Background())
		h.checks[key] = c
		h.running.Go(func() { h.serve(ctx, c) })
	}
	c.mu.Lock()
	c.endpoints = v.LocalEndpoints
	c.mu.Unlock()
}

// close ends all checks.
func (h *healthChecks) close() {
	h.update(func(func(intent.NodeService) bool) {})
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.running.Wait()
}

// problems say why load balancers cannot ask about Services.
func (h *healthChecks) problems() map[types.NamespacedName]error {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[types.NamespacedName]error{}
	for _, c := range h.checks {
		c.mu.Lock()
		if c.err != nil {
			all[types.NamespacedName{Namespace: c.namespace, Name: c.name}] = c.err
		}
		c.mu.Unlock()
	}
	return all
}

// addresses are where a port is served: at every address, or at those of the host's
// that have node ports.
func (h *healthChecks) addresses(port uint16) ([]string, error) {
	if len(h.at) == 0 {
		return []string{net.JoinHostPort("", strconv.Itoa(int(port)))}, nil
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("addresses of the host: %w", err)
	}
	var list []string
	for _, a := range own {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && slices.ContainsFunc(h.at, func(at netip.Prefix) bool { return at.Contains(p.Addr()) }) {
			list = append(list, netip.AddrPortFrom(p.Addr(), port).String())
		}
	}
	return list, nil
}

// serve answers for one Service until ctx ends. A port that another process has is tried again.
func (h *healthChecks) serve(ctx context.Context, c *healthCheck) {
	serveAgain(ctx, func() error { return h.serveOnce(ctx, c) }, func(err error) {
		c.mu.Lock()
		news := err != nil && (c.err == nil || c.err.Error() != err.Error())
		c.err = err
		c.mu.Unlock()
		if news {
			h.log.Warn("cannot serve the health check of a Service; load balancers may stop using this node",
				"service", c.namespace+"/"+c.name, "port", c.port, "err", err)
		}
	})
}

// Bounds of the pause before a port that another process has is tried again.
const (
	minServePause = time.Second
	maxServePause = 30 * time.Second
)

// serveAgain calls serve, which blocks while all is well, until ctx ends, and tells how it went.
func serveAgain(ctx context.Context, serve func() error, outcome func(error)) {
	for backoff := retry.New(minServePause, maxServePause); ; {
		err := serve()
		if ctx.Err() != nil {
			return
		}
		outcome(err)
		if !backoff.Wait(ctx) {
			return
		}
	}
}

func (h *healthChecks) serveOnce(ctx context.Context, c *healthCheck) error {
	addresses, err := h.addresses(c.port)
	if err != nil {
		return err
	}
	if len(addresses) == 0 {
		return fmt.Errorf("the host has no address in services.nodePortAddresses %v", h.at)
	}
	var listening []net.Listener
	for _, a := range addresses {
		l, err := h.listen(a)
		if err != nil {
			for _, l := range listening {
				_ = l.Close()
			}
			return err
		}
		listening = append(listening, l)
	}
	c.mu.Lock()
	c.err = nil
	c.mu.Unlock()
	return serveHTTP(ctx, h.handler(c), listening...)
}

// headerTimeout bounds how long a client may take to ask.
const headerTimeout = 10 * time.Second

// serveHTTP serves on all listeners until ctx ends or one fails. It closes them.
func serveHTTP(ctx context.Context, handler http.Handler, listeners ...net.Listener) error {
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	var serving sync.WaitGroup
	defer serving.Wait()
	first := make(chan error, len(listeners))
	for _, l := range listeners {
		serving.Go(func() { first <- srv.Serve(l) })
	}
	err := <-first
	_ = srv.Close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// answer is the body, as load balancers know it from kube-proxy.
type answer struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

func (h *healthChecks) handler(c *healthCheck) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		var a answer
		a.Service.Namespace, a.Service.Name = c.namespace, c.name
		c.mu.Lock()
		a.LocalEndpoints = c.endpoints
		c.mu.Unlock()
		a.ServiceProxyHealthy = h.healthy() == nil
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(a.LocalEndpoints))
		if a.LocalEndpoints == 0 || !a.ServiceProxyHealthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "\t")
		// An error here is a client that has gone.
		_ = e.Encode(a)
	}
}

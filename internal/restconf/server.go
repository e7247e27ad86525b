// SPDX-License-Identifier: Apache-2.0

// Package restconf serves the Kubernetes API by RESTCONF (RFC 8040), with the YANG models that
// clients of COE and Netvirt use. It keeps nothing: every answer is made of objects as they are,
// and every edit writes objects. Kubernetes says what a client may do.
package restconf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/policystream/certs"
)

// Bounds of connections and requests.
const (
	maxConnections = 512
	maxHeader      = 64 << 10
	headerTimeout  = 10 * time.Second
	requestTimeout = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	stopTimeout    = 3 * time.Second
)

// Options are what a Server is made with.
type Options struct {
	Log         *slog.Logger
	Kubernetes  kubernetes.Interface
	API         API
	Namespace   string // of Coelan: it has the Secrets
	BindAddress string
	// Clients are the authorities that sign clients' certificates; nil: none are accepted.
	Clients func(context.Context) (*x509.CertPool, error)
	// Loop is the heartbeat of what keeps the server's certificate.
	Loop *heartbeat.Loop
}

// Server serves RESTCONF by HTTPS. It is a Runnable of controller-runtime's manager.
type Server struct {
	Options
	handler *handler
}

// New makes a Server that does not serve yet.
func New(o Options) (*Server, error) {
	h, err := newHandler(o)
	if err != nil {
		return nil, fmt.Errorf("restconf: %w", err)
	}
	return &Server{Options: o, handler: h}, nil
}

// NeedLeaderElection says that every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.BindAddress)
	if err != nil {
		return fmt.Errorf("restconf: %w", err)
	}
	keeper := certs.NewKeeper(s.Kubernetes, s.Namespace, s.Log, s.Loop)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return keeper.Run(ctx) })
	g.Go(func() error { return s.handler.streams.run(ctx) })
	g.Go(func() error {
		select {
		case <-keeper.Ready():
		case <-ctx.Done():
			return listener.Close()
		}
		s.Log.Info("RESTCONF server listening", "address", listener.Addr().String())
		return Serve(ctx, listener, keeper.Certificate, s.handler, s.Log)
	})
	return g.Wait()
}

// Serve answers requests by HTTPS until ctx ends.
func Serve(ctx context.Context, l net.Listener, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error),
	h http.Handler, log *slog.Logger,
) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: 2 * requestTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: certificate, ClientAuth: tls.RequestClientCert,
		},
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err := server.Shutdown(within)
		if err != nil {
			err = server.Close()
		}
		stopped <- err
	})
	err := server.ServeTLS(netutil.LimitListener(l, maxConnections), "", "")
	if stop() {
		return fmt.Errorf("restconf: %w", err)
	}
	if err := <-stopped; err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("restconf: %w", err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"k8s.io/client-go/kubernetes"

	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/policystream/certs"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/wire"
)

// Options are what a Server is made with.
type Options struct {
	Hub *Hub
	// Kubernetes reviews tokens, holds the certificate, and knows the other controllers.
	Kubernetes kubernetes.Interface
	// Namespace of the agents' and controllers' service accounts, and of all that is kept.
	Namespace string
	// BindAddress is ADDRESS:PORT.
	BindAddress string
	// TokenFile has what this controller shows the others; empty: it does not ask them.
	TokenFile string
	Log       *slog.Logger
	// Monitor reports a certificate's keeper that is stuck.
	Monitor *heartbeat.Monitor
	// Metrics may be nil.
	Metrics prometheus.Registerer
}

// Server serves a Hub's views to agents. It is a Runnable of controller-runtime's managers.
type Server struct {
	Options
	metrics     *metrics
	certificate *heartbeat.Loop
}

// New is a server that does not serve yet.
func New(o Options) *Server {
	s := &Server{Options: o, metrics: newMetrics(o.Hub), certificate: o.Monitor.Loop("certificate")}
	if o.Metrics != nil {
		s.metrics.register(o.Metrics)
	}
	return s
}

// NeedLeaderElection says that every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.BindAddress)
	if err != nil {
		return fmt.Errorf("policies' server: %w", err)
	}
	keeper := certs.NewKeeper(s.Kubernetes, s.Namespace, s.Log, s.certificate)
	auth := NewReviewer(s.Kubernetes.AuthenticationV1().TokenReviews(), s.Namespace)
	auth.refused = s.metrics.unreviewed.Inc
	service := newService(s.Hub, auth, s.metrics)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return keeper.Run(ctx) })
	if s.TokenFile != "" {
		g.Go(func() error {
			controllers := client.Watch(ctx, s.Kubernetes, s.Namespace, s.Log)
			service.Follow(ctx, controllers, s.Namespace, client.TokenFile(s.TokenFile), s.Log)
			return nil
		})
	}
	g.Go(func() error {
		select {
		case <-keeper.Ready():
		case <-ctx.Done():
			return listener.Close()
		}
		s.Log.Info("policy server listening", "address", listener.Addr().String())
		return Serve(ctx, s.metrics.gate(listener), keeper.Certificate, service)
	})
	return g.Wait()
}

// How long connections live. Agents' streams end before that, and with a word.
const (
	maxAge       = 2 * streamAge
	maxAgeGrace  = time.Second
	maxIdle      = time.Minute
	pingInterval = 10 * time.Second
	pingTimeout  = 5 * time.Second
	handshake    = 10 * time.Second
	// callsPerConnection: an agent has one.
	callsPerConnection = 4
	maxHeaders         = 32 << 10
	// callWindow is how much of a call is taken before it is read, which is
	// after its authentication.
	callWindow = 64 << 10
)

// Serve answers calls until ctx ends. Connections of a Gate are bounded.
func Serve(ctx context.Context, l net.Listener, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error),
	to wire.PoliciesServer,
) error {
	server := grpc.NewServer(
		grpc.Creds(handshakes{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13,
			GetCertificate: certificate})}),
		grpc.InitialWindowSize(callWindow), grpc.InitialConnWindowSize(callsPerConnection*callWindow),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: maxAge, MaxConnectionAgeGrace: maxAgeGrace, MaxConnectionIdle: maxIdle,
			Time: pingInterval, Timeout: pingTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingInterval / 2,
			PermitWithoutStream: true}),
		grpc.ConnectionTimeout(handshake), grpc.MaxConcurrentStreams(callsPerConnection),
		grpc.MaxHeaderListSize(maxHeaders),
	)
	wire.RegisterPoliciesServer(server, to)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) && ctx.Err() == nil {
		return fmt.Errorf("policies' server: %w", err)
	}
	return nil
}

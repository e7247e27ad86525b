// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"coelan.io/coelan/internal/policystream/wire"
)

// Token returns what is shown to a controller. It is asked for each call: tokens are
// renewed all the time.
type Token func() (string, error)

// TokenFile is the token in a file.
func TokenFile(path string) Token {
	return func() (string, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("token for the controller: %w", err)
		}
		token := strings.TrimSpace(string(text))
		if token == "" {
			return "", fmt.Errorf("token for the controller: %s is empty", path)
		}
		return token, nil
	}
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t Token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := t()
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (t Token) RequireTransportSecurity() bool { return true }

// How soon it is noticed that a controller is gone without a word, and that nothing
// answers at an address.
const (
	pingInterval   = 10 * time.Second
	pingTimeout    = 5 * time.Second
	connectTimeout = 5 * time.Second
)

// Dial prepares a connection to one controller. Its certificate must have that name.
func Dial(address, name string, roots *x509.CertPool, token Token) (*grpc.ClientConn, error) {
	if roots == nil {
		return nil, errors.New("the controllers' authority is not known yet")
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: name,
		})),
		grpc.WithPerRPCCredentials(token),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout,
			PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxMessage)),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	)
	if err != nil {
		return nil, fmt.Errorf("controller %s: %w", address, err)
	}
	return conn, nil
}

// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coelan.io/coelan/internal/policystream/wire"
	"coelan.io/coelan/internal/retry"
)

// Calls uses a connection to a controller until ctx ends.
type Calls func(ctx context.Context, conn grpc.ClientConnInterface)

// Configuration follows which NodeNetworkConfig holds for a node.
type Configuration struct {
	Log *slog.Logger
	// Received is called with what holds, at first and after each change. It does not block.
	Received func(*wire.NodeConfiguration)
	// Failed is called with why a controller does not answer.
	Failed func(error)
}

// Follow asks the controller of a connection, until ctx ends. A controller that refuses is asked
// again, ever more seldom: the addresses of a node can change.
func (c Configuration) Follow(ctx context.Context, conn grpc.ClientConnInterface) {
	for backoff := retry.New(firstPause, lastPause); ; {
		began := false
		err := c.stream(ctx, conn, func() { began = true })
		if ctx.Err() != nil {
			return
		}
		if began {
			backoff.Reset()
		} else if status.Code(err) == codes.Unimplemented {
			// The connection is to a controller of an older release: another one may know more.
			c.Log.Debug("the controller has no configurations of nodes", "err", err)
			<-ctx.Done()
			return
		} else {
			c.Failed(err)
		}
		if !backoff.Wait(ctx) {
			return
		}
	}
}

// stream is one call; answered is called with each answer.
func (c Configuration) stream(ctx context.Context, conn grpc.ClientConnInterface, answered func()) error {
	stream, err := wire.NewPoliciesClient(conn).Configuration(ctx, &wire.ConfigurationRequest{})
	if err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		answered()
		c.Received(m)
	}
}

// Run asks the controllers until ctx ends. It is for an agent that enforces no policies, and so has
// no connection to a controller by a Client.
func (c Configuration) Run(ctx context.Context, controllers Controllers, namespace string, token Token) {
	r := rounds{
		controllers: controllers, ended: func(string, error) {}, failed: c.Failed,
		session: func(ctx context.Context, address string) (began bool, err error) {
			_, roots := controllers.Current()
			conn, err := Dial(address, wire.ServerName(namespace), roots, token)
			if err != nil {
				return false, err
			}
			defer conn.Close()
			err = c.stream(ctx, conn, func() { began = true })
			return began, err
		},
	}
	r.run(ctx)
}

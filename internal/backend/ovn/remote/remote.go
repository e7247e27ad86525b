// SPDX-License-Identifier: Apache-2.0

// Package remote connects to servers of OVN's databases.
package remote

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
)

// closeTimeout bounds the wait for libovsdb to stop.
const closeTimeout = 30 * time.Second

// Options are where a database is.
type Options struct {
	Model model.ClientDBModel
	// Remotes are the servers, such as unix:/run/ovn/ovnnb_db.sock, tcp:10.0.0.1:6641 or
	// ssl:[fd00::1]:6641: one, or those of a RAFT cluster.
	Remotes []string
	// Leader says that of a cluster only the leader is used.
	Leader bool
	TLS    *tls.Config // for ssl
}

// Connection is one connection, which does not come back when it is lost.
type Connection struct {
	client.Client
	ended chan struct{}
	stop  func()
}

// Connect returns a Connection to the first of the servers that answers. Close ends it.
func Connect(ctx context.Context, o Options) (*Connection, error) {
	quiet := logr.Discard()
	options := []client.Option{client.WithLeaderOnly(o.Leader), client.WithLogger(&quiet)}
	for _, r := range o.Remotes {
		options = append(options, client.WithEndpoint(r))
	}
	if o.TLS != nil {
		options = append(options, client.WithTLSConfig(o.TLS))
	}
	cli, err := client.NewOVSDBClient(o.Model, options...)
	if err != nil {
		return nil, err
	}
	c := &Connection{Client: cli, ended: make(chan struct{})}
	abort := make(chan struct{})
	go func() { // libovsdb does not queue the notification: a receiver must wait from the start
		select {
		case <-cli.DisconnectNotify():
			close(c.ended)
		case <-abort:
		}
	}()
	c.stop = sync.OnceFunc(func() { close(abort) })
	if err := cli.Connect(ctx); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// Ended is closed when the Connection has ended.
func (c *Connection) Ended() <-chan struct{} { return c.ended }

// Close ends the Connection and waits until libovsdb has stopped.
func (c *Connection) Close() {
	c.Client.Close()
	select {
	case <-c.ended:
	case <-time.After(closeTimeout):
	}
	c.stop()
}

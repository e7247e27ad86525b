// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"context"
	"strings"

	"coelan.io/coelan/internal/backend/ovs/reconnect"
	"coelan.io/coelan/openflow"
)

// Client keeps a connection to a switch.
type Client = reconnect.Client[*openflow.Conn]

// ClientOptions say to which switch, and how.
type ClientOptions struct {
	// Address is as for openflow.Dial.
	Address string
	// Conn are the options of each connection.
	Conn openflow.ConnOptions
	// OnConnect, if set, is called after each handshake, the first included: the switch may have
	// restarted, so its flows have to be checked. It must not block.
	OnConnect func(*openflow.Conn)
	// OnDisconnect, if set, is called after each loss. It must not block.
	OnDisconnect func(error)
}

// NewClient starts to connect, in the background.
func NewClient(o ClientOptions) *Client {
	socket, ok := strings.CutPrefix(o.Address, "unix:")
	if !ok {
		socket = ""
	}
	c := reconnect.New(reconnect.Options[*openflow.Conn]{
		Server: "the OpenFlow switch at " + o.Address,
		Socket: socket,
		Dial: func(ctx context.Context) (*openflow.Conn, error) {
			return openflow.Dial(ctx, o.Address, o.Conn)
		},
		Disconnected: openflow.ErrDisconnected,
		Log:          o.Conn.Logger,
		OnConnect:    o.OnConnect,
		OnDisconnect: o.OnDisconnect,
	})
	c.Start()
	return c
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"time"

	"coelan.io/coelan/internal/cni/wire"
)

// undoTimeout bounds the DEL of an IPAM plugin after an ADD that failed, which also runs when the
// call's own time is over.
const undoTimeout = 10 * time.Second

// caller makes one call of the runtime: it asks the agent, and calls the IPAM plugin of the
// configuration if there is one.
type caller struct {
	request  wire.Request
	socket   string
	path     string // of the agent's request
	deadline time.Time
	ipam     ipamPlugin
}

// call returns what is to be printed. Addresses are given back only when nothing has them any more,
// so the agent is asked first. It is with ADD too: for what is attached already, the IPAM plugin
// must not be called again.
func (c caller) call() ([]byte, error) {
	answer, err := c.ask(nil)
	var cniErr *wire.Error
	switch {
	case errors.As(err, &cniErr) && cniErr.Code == wire.CodeAddresses && c.request.Command == "ADD":
		return c.addWithAddresses()
	case err != nil || c.request.Command == "ADD" || !wire.Delegates(c.ipam.name):
		return answer, err
	}
	_, err = c.ipam.run(c.request.Command, c.deadline)
	return answer, err
}

// addWithAddresses gives the agent addresses of the IPAM plugin, and gives them back if the agent
// does not take them.
func (c caller) addWithAddresses() ([]byte, error) {
	addresses, err := c.ipam.run("ADD", c.deadline)
	if err != nil {
		return nil, err
	}
	answer, err := c.ask(addresses)
	if err == nil {
		return answer, nil
	}
	var cniErr *wire.Error
	if left := c.ipam.undo("ADD"); errors.As(err, &cniErr) {
		cniErr.Details += left
	}
	return nil, err
}

func (c caller) ask(addresses []byte) ([]byte, error) {
	r := c.request
	r.Addresses = addresses
	r.TimeoutMillis = max(time.Until(c.deadline).Milliseconds(), 1)
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return exchange(c.socket, c.path, body, c.deadline, r.Command == "STATUS")
}

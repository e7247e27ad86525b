// SPDX-License-Identifier: Apache-2.0

// Package foreignbridge plugs pods' interfaces into bridges of Open vSwitch that external
// controllers own. It makes the bridge, its controller, the OVSDB manager, the uplink and the ports
// as a network configuration names them, and no flow. What is attached is written in the ports'
// external_ids, and nowhere else.
package foreignbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/keymutex"
)

// The external_ids of a port. Those without a prefix are COE's, which external controllers read.
const (
	idInterface = "iface-id"
	idMAC       = "attached-mac"
	idAddress   = "ip-address"
	idContainer = "coelan-container-id"
	idIfName    = "coelan-interface"
	// idAttachment has the whole attachment, as JSON.
	idAttachment = "coelan-attachment"
)

// Database is what Bridges need of Open vSwitch's database. *ovsdb.Client is one.
type Database interface {
	Bridges(ctx context.Context) ([]ovsdb.BridgeState, error)
	PlugForeign(ctx context.Context, b ovsdb.ForeignBridge, p ovsdb.Port) error
	CheckForeign(ctx context.Context, b ovsdb.ForeignBridge, p ovsdb.Port) error
	ForeignUsable(ctx context.Context, b ovsdb.ForeignBridge) error
	UnplugForeign(ctx context.Context, name string) error
	CloseForeign(ctx context.Context, name string) error
	Lister
}

// Links are the node's interfaces.
type Links interface {
	// Card says what the node needs an interface for.
	Card(name string) (hostnet.Card, error)
	SetUp(name string) error
}

// Bridges are those of one node.
type Bridges struct {
	db    Database
	links Links
	// datapath is that of the agent's bridge, for bridges that have to be made.
	datapath func() string
	// making has one call at a time make what several pods share.
	making keymutex.Mutex
}

// New returns the bridges of a database.
func New(db Database, links Links, datapath func() string) *Bridges {
	return &Bridges{db: db, links: links, datapath: datapath}
}

// Datapath is that of a bridge, or the one that it would be made with.
func (b *Bridges) Datapath(ctx context.Context, name string) (string, error) {
	all, err := b.db.Bridges(ctx)
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(all, func(s ovsdb.BridgeState) bool { return s.Name == name }); i >= 0 {
		return all[i].Datapath, nil
	}
	return b.datapath(), nil
}

// Plug makes the port of an attachment, with a host interface that exists, and what is missing for
// it. On an error nothing is left of what was made.
func (b *Bridges) Plug(ctx context.Context, f attachment.ForeignBridge, a attachment.Attachment) error {
	port, err := podPort(f, a)
	if err != nil {
		return err
	}
	unlock, err := b.making.Lock(ctx, "bridges")
	if err != nil {
		return fmt.Errorf("bridge %s: %w", f.Name, err)
	}
	defer unlock()
	if err := b.checkUplink(ctx, f); err != nil {
		return err
	}
	if err := b.db.PlugForeign(ctx, b.row(f), port); err != nil {
		return fmt.Errorf("attach %s: %w", a.PodRef(), err)
	}
	// Ovs-vswitchd writes an interface's flags as it remembers them by its name.
	for _, name := range []string{a.HostInterface, f.Uplink} {
		if name == "" {
			continue
		}
		if err := b.links.SetUp(name); err != nil {
			return errors.Join(fmt.Errorf("attach %s: %w", a.PodRef(), err), b.Unplug(ctx, a))
		}
	}
	return nil
}

// checkUplink refuses an interface that the node itself needs: as a port of a bridge it carries
// nothing of the node's any more.
func (b *Bridges) checkUplink(ctx context.Context, f attachment.ForeignBridge) error {
	if f.Uplink == "" {
		return nil
	}
	all, err := b.db.Bridges(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Name == f.Uplink {
			return fmt.Errorf("externalIntf %s is a bridge: name the network card that is to be a port of %s", f.Uplink,
				f.Name)
		}
		if s.Name == f.Name && slices.Contains(s.Ports, f.Uplink) {
			return nil // as it is, by whatever program
		}
	}
	card, err := b.links.Card(f.Uplink)
	if err != nil {
		return fmt.Errorf("externalIntf: %w", err)
	}
	if reason := needed(card); reason != "" {
		return fmt.Errorf("externalIntf: interface %s %s: the node would be cut off; "+
			"name a card that serves nothing else", f.Uplink, reason)
	}
	return nil
}

// needed says what the node needs a card for; "": nothing.
func needed(c hostnet.Card) string {
	switch {
	case c.Loopback:
		return "is the loopback"
	case c.Master != "":
		return "is a part of " + c.Master
	case len(c.Uppers) > 0:
		return "carries " + strings.Join(c.Uppers, ", ")
	case len(c.Addresses) > 0:
		return "has the address " + c.Addresses[0].String()
	case c.Default:
		return "has a default route"
	}
	return ""
}

// Usable says why pods cannot be plugged into a bridge.
func (b *Bridges) Usable(ctx context.Context, f attachment.ForeignBridge) error {
	return errors.Join(b.db.ForeignUsable(ctx, b.row(f)), b.checkUplink(ctx, f))
}

// Check says what of Plug's is missing or differs.
func (b *Bridges) Check(ctx context.Context, f attachment.ForeignBridge, a attachment.Attachment) error {
	port, err := podPort(f, a)
	if err != nil {
		return err
	}
	return b.db.CheckForeign(ctx, b.row(f), port)
}

// Unplug removes the port of an attachment; that there is none is no error.
func (b *Bridges) Unplug(ctx context.Context, a attachment.Attachment) error {
	if err := b.db.UnplugForeign(ctx, a.HostInterface); err != nil {
		return fmt.Errorf("detach %s: %w", a.PodRef(), err)
	}
	return nil
}

// Close is Unplug, and returns when Open vSwitch does not use the host interface any more.
func (b *Bridges) Close(ctx context.Context, a attachment.Attachment) error {
	if err := b.db.CloseForeign(ctx, a.HostInterface); err != nil {
		return fmt.Errorf("detach %s: %w", a.PodRef(), err)
	}
	return nil
}

// Attached are the attachments of all ports.
func (b *Bridges) Attached(ctx context.Context) ([]attachment.Attachment, error) {
	return Attachments(ctx, b.db)
}

// Lister lists what was made for external controllers.
type Lister interface {
	ForeignPorts(ctx context.Context) ([]ovsdb.PortState, error)
}

// Attachments are those of a database's ports. What is not an attachment any more, because
// external_ids were edited, is an error beside the others.
func Attachments(ctx context.Context, db Lister) (list []attachment.Attachment, err error) {
	ports, err := db.ForeignPorts(ctx)
	for _, p := range ports {
		text, ok := p.ExternalIDs[idAttachment]
		if !ok {
			continue
		}
		var a attachment.Attachment
		if e := json.Unmarshal([]byte(text), &a); e != nil || a.HostInterface != p.Name {
			err = errors.Join(err, fmt.Errorf(
				"port %s on bridge %s: external_ids:%s is not what the agent wrote: remove the port", p.Name, p.Bridge,
				idAttachment))
			continue
		}
		list = append(list, a)
	}
	return list, err
}

func (b *Bridges) row(f attachment.ForeignBridge) ovsdb.ForeignBridge {
	return ovsdb.ForeignBridge{
		Name: f.Name, Datapath: b.datapath(), Network: f.ConfName, Controller: f.Controller, Manager: f.Manager,
		Uplink: f.Uplink,
	}
}

// podPort is the port of an attachment.
func podPort(f attachment.ForeignBridge, a attachment.Attachment) (ovsdb.Port, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return ovsdb.Port{}, fmt.Errorf("attachment of %s: %w", a.PodRef(), err)
	}
	return ovsdb.Port{
		Name: a.HostInterface,
		ExternalIDs: map[string]string{
			idInterface: f.ClusterID + ":" + a.PodName, idMAC: a.MAC.String(),
			idAddress: a.Addresses[0].Addr().String(), idContainer: a.ContainerID, idIfName: a.IfName,
			idAttachment: string(text),
		},
	}, nil
}

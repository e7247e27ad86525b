// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/netconf"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/reserved"
)

// ForeignBridges connect the host's ends of pods' interfaces to bridges that external controllers
// own. They also keep what is attached there, because nothing else of the agent is about it: no
// Network, no Port, no flow. Every method is idempotent, and may be called for several attachments
// at once, but not for one attachment by two callers.
type ForeignBridges interface {
	// ForeignDatapath is "system" or "netdev": that of a bridge, or the one that it would be made
	// with.
	ForeignDatapath(ctx context.Context, bridge string) (string, error)
	// PlugForeign makes the port of an attachment, and what else is missing of the bridge. On an
	// error nothing is left of what it made.
	PlugForeign(ctx context.Context, b attachment.ForeignBridge, a attachment.Attachment) error
	// UnplugForeign removes the port. CloseForeign does, and returns when the host interface is not
	// used any more.
	UnplugForeign(ctx context.Context, a attachment.Attachment) error
	CloseForeign(ctx context.Context, a attachment.Attachment) error
	// CheckForeign says what of PlugForeign's is missing or differs.
	CheckForeign(ctx context.Context, b attachment.ForeignBridge, a attachment.Attachment) error
	// ForeignUsable says why nothing can be plugged into a bridge.
	ForeignUsable(ctx context.Context, b attachment.ForeignBridge) error
	// ForeignAttached lists what is plugged in.
	ForeignAttached(ctx context.Context) ([]attachment.Attachment, error)
}

// foreignTimeout bounds a question about what may be attached to a foreign bridge, of a call that
// need not be about one: DEL works while Open vSwitch is away.
const foreignTimeout = 3 * time.Second

// makingForeign are the host interfaces that are being made for foreign bridges. Their ports come
// later.
type makingForeign struct {
	mu    sync.Mutex
	names map[string]bool
}

func (m *makingForeign) begin(name string) (end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names == nil {
		m.names = map[string]bool{}
	}
	m.names[name] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.names, name)
	}
}

func (m *makingForeign) copyTo(names map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.names {
		names[name] = true
	}
}

// foreignBridge is what a configuration says of its bridge.
func foreignBridge(conf netconf.Config) attachment.ForeignBridge {
	f := conf.Foreign
	return attachment.ForeignBridge{
		Name: f.Name, ConfName: conf.Name, Controller: f.Controller, Manager: f.Manager, Uplink: f.Uplink,
		ClusterID: f.ClusterID,
	}
}

// checkForeign refuses what would need Coelan's flows or Networks.
func (c *call) checkForeign(port map[string]string) error {
	if c.conf.Foreign == nil {
		return nil
	}
	for _, key := range portKeys {
		if value, ok := port[key]; ok {
			return wrongArg(key, value, "says what an interface of a Network is, and bridge %s is an external controller's",
				c.conf.Foreign.Name)
		}
	}
	if len(c.hostPorts) == 0 {
		return nil
	}
	return newError(wire.CodeInvalidConfig, "runtimeConfig in the network configuration: portMappings",
		fmt.Sprintf("host ports lead to pods on the agent's bridge, and bridge %s is an external controller's",
			c.conf.Foreign.Name))
}

// foreign finds what is attached to a foreign bridge by a key.
func (s *Server) foreign(ctx context.Context, key attachment.Key) (a attachment.Attachment, found bool, err error) {
	list, err := s.opts.Foreign.ForeignAttached(ctx)
	if i := slices.IndexFunc(list, func(a attachment.Attachment) bool { return a.Key == key }); i >= 0 {
		return list[i], true, nil
	}
	return a, false, err
}

// addForeign attaches a pod's interface to a foreign bridge. For what is attached already it
// repairs what is missing and returns the same result. The container is locked.
func (s *Server) addForeign(ctx context.Context, c call, node Node) ([]byte, error) {
	a, found, err := s.foreign(ctx, c.Key)
	if err != nil {
		return nil, err
	}
	if found {
		if found, err = s.sameContainer(ctx, group{a}, c, s.detachForeign); err != nil {
			return nil, err
		}
	}
	if !found && c.given == nil {
		return nil, errAddresses
	}
	datapath, err := s.opts.Foreign.ForeignDatapath(ctx, c.conf.Foreign.Name)
	if err != nil {
		return nil, err
	}
	if !found {
		a = c.foreignAttachment(node.MTU)
	} else if err := c.given.matches(a); err != nil {
		return nil, err
	}
	i := podnet.Interface{Attachment: a, TXOffload: datapath == "system"}
	if found {
		err = s.repairForeign(ctx, c, i)
	} else {
		err = s.attachForeign(ctx, c, i)
	}
	if err != nil {
		return nil, err
	}
	return encodeResult(resultOf(group{a}, c.conf), c.conf.CNIVersion)
}

// foreignAttachment is what an interface gets: all that the IPAM plugin gave.
func (c *call) foreignAttachment(mtu int) attachment.Attachment {
	a := attachment.Attachment{
		Spec: attachment.Spec{
			Key: c.Key, ConfName: c.conf.Name, PodUID: c.PodUID, PodNamespace: c.PodNamespace, PodName: c.PodName,
			Netns: c.netns, HostInterface: attachment.ForeignInterface(c.Key), MTU: mtu, Routes: c.given.routes,
			DNS: c.given.dns,
		},
		Addresses: c.given.prefixes, Gateways: c.given.gateways, MAC: reserved.PodMAC(c.given.prefixes[0].Addr()),
		Created: time.Now().UTC().Truncate(time.Second),
	}
	if c.MAC != nil {
		a.MAC, a.FixedMAC = *c.MAC, true
	}
	for _, all := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		i, asked := slices.IndexFunc(c.given.hops, sameFamily(all)), c.given.hasDefault(all.Is4())
		switch {
		case i >= 0 && (asked || c.conf.DefaultGateway):
			a.DefaultRoutes = append(a.DefaultRoutes, c.given.hops[i])
		case i < 0 && asked:
			to := attachment.Route{Destination: netip.PrefixFrom(all, 0)}
			a.Routes = append(slices.Clone(a.Routes), to)
		}
	}
	return a
}

// attachForeign makes an attachment from nothing. If a step fails, those before it are undone.
func (s *Server) attachForeign(ctx context.Context, c call, i podnet.Interface) (err error) {
	start := time.Now()
	defer s.makingForeign.begin(i.HostInterface)()
	var undo undoList
	defer func() { err = undo.after(ctx, err) }()
	if err := s.opts.Interfaces.Create(i); err != nil {
		return err
	}
	undo.add(func(context.Context) error { return s.opts.Interfaces.Remove(i.HostInterface) })
	if err := s.opts.Interfaces.Configure(i); err != nil {
		return err
	}
	// Also if it is not known whether there is a port, because Open vSwitch did not answer in time.
	undo.add(func(ctx context.Context) error { return s.opts.Foreign.UnplugForeign(ctx, i.Attachment) })
	if err := s.opts.Foreign.PlugForeign(ctx, foreignBridge(c.conf), i.Attachment); err != nil {
		return err
	}
	s.log.Info("pod attached to the bridge of an external controller", "pod", i.PodRef(), "container", i.ContainerID,
		"bridge", c.conf.Foreign.Name, "addresses", i.Addresses, "host interface", i.HostInterface,
		"took", time.Since(start))
	return nil
}

// repairForeign makes everything of an attachment that is missing. It undoes nothing.
func (s *Server) repairForeign(ctx context.Context, c call, i podnet.Interface) error {
	problem := s.opts.Interfaces.Check(i)
	if missing := new(podnet.MissingError); errors.As(problem, &missing) {
		if err := s.opts.Foreign.CloseForeign(ctx, i.Attachment); err != nil {
			return err
		}
		defer s.makingForeign.begin(i.HostInterface)()
		if err := s.opts.Interfaces.Create(i); err != nil {
			return err
		}
	}
	if problem != nil {
		s.log.Warn("repairing a pod's interface", "pod", i.PodRef(), "container", i.ContainerID, "problem", problem)
		if err := s.opts.Interfaces.Configure(i); err != nil {
			return err
		}
	}
	return s.opts.Foreign.PlugForeign(ctx, foreignBridge(c.conf), i.Attachment)
}

// delForeign detaches what is attached to a foreign bridge, if anything is, whatever the
// configuration says by now.
func (s *Server) delForeign(ctx context.Context, c call) error {
	bounded, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	a, found, err := s.foreign(bounded, c.Key)
	switch {
	case err != nil && c.conf.Foreign != nil:
		return err
	case err != nil:
		// It is detached by Reconcile if it was attached by another configuration.
		s.log.Warn("cannot ask for attachments of external controllers", "container", c.Key, "err", err)
		return nil
	case !found && c.conf.Foreign != nil:
		// A DEL before this one may have failed after the port was removed.
		return s.opts.Interfaces.Remove(attachment.ForeignInterface(c.Key))
	case !found:
		return nil
	case c.PodUID != "" && c.PodUID != a.PodUID:
		s.log.Warn("ignored a DEL whose pod UID is not the attachment's",
			"container", a.ContainerID, "pod", a.PodRef(), "uid", a.PodUID, "asked", c.PodUID)
		return nil
	}
	return s.detachForeign(ctx, group{a})
}

// detachForeign undoes attachments. It goes on when the caller is gone.
func (s *Server) detachForeign(ctx context.Context, g group) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Timeout)
	defer cancel()
	for _, a := range g {
		if err := s.opts.Foreign.UnplugForeign(ctx, a); err != nil {
			return err
		}
		if err := s.opts.Interfaces.Remove(a.HostInterface); err != nil {
			return err
		}
		s.log.Info("pod detached from the bridge of an external controller", "pod", a.PodRef(),
			"container", a.ContainerID, "addresses", a.Addresses)
	}
	return nil
}

// checkAttachedForeign returns an error that names every difference between what ADD made and what
// is there now. The container is locked.
func (s *Server) checkAttachedForeign(ctx context.Context, c call) error {
	a, found, err := s.foreign(ctx, c.Key)
	if err != nil {
		return err
	}
	if !found || c.PodUID != "" && c.PodUID != a.PodUID {
		return notAttached(c)
	}
	if err := s.opts.Interfaces.Verify(c.netns); err != nil {
		return err
	}
	if err := checkPrevResult(group{a}, c.conf); err != nil {
		return err
	}
	datapath, err := s.opts.Foreign.ForeignDatapath(ctx, c.conf.Foreign.Name)
	if err != nil {
		return err
	}
	return notAsADD(c, errors.Join(
		s.opts.Interfaces.Check(podnet.Interface{Attachment: a, TXOffload: datapath == "system"}),
		s.opts.Foreign.CheckForeign(ctx, foreignBridge(c.conf), a)))
}

// gcForeign detaches what is not valid.
func (s *Server) gcForeign(ctx context.Context, c call, valid map[attachment.Key]bool) error {
	list, err := s.opts.Foreign.ForeignAttached(ctx)
	errs := []error{err}
	for _, a := range list {
		if a.ConfName != c.conf.Name || valid[a.Key] {
			continue
		}
		err := s.ifStillForeign(ctx, a, func(a attachment.Attachment) error {
			return s.detachForeign(ctx, group{a})
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("container %s: %w", a.Key, err))
		}
	}
	return errors.Join(errs...)
}

// ifStillForeign calls fn with the container locked, unless the attachment has gone before.
func (s *Server) ifStillForeign(ctx context.Context, a attachment.Attachment,
	fn func(attachment.Attachment) error,
) error {
	unlock, err := s.lock(ctx, a.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	now, found, err := s.foreign(ctx, a.Key)
	if err != nil || !found {
		return err
	}
	return fn(now)
}

// statusForeign says whether ADD could succeed now.
func (s *Server) statusForeign(ctx context.Context, c call) error {
	_, err := s.opts.Node.Node()
	if err = errors.Join(err, s.opts.Foreign.ForeignUsable(ctx, foreignBridge(c.conf))); err != nil {
		return newError(wire.CodeNotAvailable, "pods cannot be attached now", err.Error())
	}
	return nil
}

// reconcileForeign detaches what has neither a network namespace nor a host interface any more,
// such as after a reboot, of which a DEL may have got lost. It returns the host interfaces that are
// used.
func (s *Server) reconcileForeign(ctx context.Context, links map[string]bool, report *Report) (
	map[string]bool, error,
) {
	used := map[string]bool{}
	// What is being made has a port when it is not being made any more: the order counts.
	s.makingForeign.copyTo(used)
	list, err := s.opts.Foreign.ForeignAttached(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, a := range list {
		used[a.HostInterface] = true
		if links[a.HostInterface] || !s.opts.Interfaces.Gone(a.Netns) {
			continue
		}
		err := s.ifStillForeign(ctx, a, func(a attachment.Attachment) error {
			if now, err := s.opts.Interfaces.Existing(); err != nil || now[a.HostInterface] {
				return err
			}
			report.Released = append(report.Released, a)
			return s.detachForeign(ctx, group{a})
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s (container %s): %w", a.PodRef(), a.ContainerID, err))
		}
	}
	return used, errors.Join(errs...)
}

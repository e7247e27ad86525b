// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/wire"
	"coelan.io/coelan/internal/retry"
)

// others are the other controllers, each asked what is in effect on the nodes of its agents, and
// which pods start there.
type others struct {
	controllers client.Controllers
	name        string
	token       client.Token
	instance    string
	hub         *Hub
	log         *slog.Logger
}

// askAgain is the pause after a controller could not be asked.
const askAgain = 2 * time.Second

// Follow asks each of the controllers where policies are in effect, for as long as it is there,
// until ctx ends. This one may be among them.
func (s *Service) Follow(ctx context.Context, controllers client.Controllers, namespace string, token client.Token,
	log *slog.Logger,
) {
	o := others{
		controllers: controllers, name: wire.ServerName(namespace), token: token, instance: s.instance, hub: s.hub,
		log: log,
	}
	var running sync.WaitGroup
	defer running.Wait()
	asked := map[string]context.CancelFunc{}
	defer func() {
		for _, stop := range asked {
			stop()
		}
	}()
	for {
		addresses, _ := o.controllers.Current()
		present := map[string]bool{}
		for _, a := range addresses {
			present[a] = true
			if asked[a] != nil {
				continue
			}
			one, stop := context.WithCancel(ctx)
			asked[a] = stop
			running.Go(func() { o.ask(one, a) })
		}
		for a, stop := range asked {
			if !present[a] {
				stop()
				delete(asked, a)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-o.controllers.Changed():
		}
	}
}

// ask is about one controller, until ctx ends or it turns out to be this one.
func (o others) ask(ctx context.Context, address string) {
	defer o.hub.tally.forget(address)
	for {
		start := time.Now()
		reported, err := o.listen(ctx, address)
		if ctx.Err() != nil || status.Code(err) == codes.AlreadyExists {
			return
		}
		if reported && time.Since(start) > askAgain {
			continue // what it said last counts until it cannot be asked
		}
		o.hub.tally.forget(address)
		o.log.Debug("cannot receive the enforcement status of policies from another controller, retrying",
			"controller", address, "err", err)
		retry.Sleep(ctx, askAgain)
	}
}

// listen takes one stream's reports; reported says that there was one.
func (o others) listen(ctx context.Context, address string) (reported bool, err error) {
	_, roots := o.controllers.Current()
	conn, err := client.Dial(address, o.name, roots, o.token)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := wire.NewPoliciesClient(conn).Realised(ctx, &wire.ProgrammedRequest{Instance: o.instance})
	if err != nil {
		return false, err
	}
	for {
		report, err := stream.Recv()
		if err != nil {
			return reported, err
		}
		news := counts{}
		for _, c := range report.GetCounts() {
			ref, err := wire.RefOf(c.GetPolicy())
			if wire.IsFromNewerRelease(err) {
				continue // this controller has no policies of that kind to count nodes for
			}
			if err != nil {
				return false, err
			}
			news[ref] = int(c.GetProgrammed())
		}
		for _, m := range report.GetAttached() {
			a, err := wire.AttachmentOf(m.GetAttachment())
			if err != nil {
				return false, err
			}
			o.hub.attached(NodeAttachment{m.GetNode(), a})
		}
		refused := map[string][]policy.Refusal{}
		for _, m := range report.GetRefused() {
			if refused[m.GetNode()], err = wire.RefusalsOf(m.GetRefusals()); err != nil {
				return false, err
			}
		}
		o.hub.tally.refusals.received(address, refused, !reported)
		o.hub.tally.received(report.GetInstance(), address, news, !reported)
		reported = true
	}
}

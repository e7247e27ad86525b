// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/controller/reconcile"
)

// apiWriters fill an API at the same time.
const apiWriters = 16

// launchAPI runs an API server with etcd, and returns a client of it. They end by close.
func launchAPI(ctx context.Context) (a *apitest.API, c client.Client, end func(), err error) {
	dir, err := os.MkdirTemp("", "bench-api")
	if err != nil {
		return nil, nil, nil, err
	}
	a, err = apitest.Launch(ctx, dir)
	end = func() {
		a.Close()
		_ = os.RemoveAll(dir)
	}
	if err == nil {
		c, err = client.New(a.REST, client.Options{Scheme: reconcile.NewScheme()})
	}
	if err != nil {
		end()
		return nil, nil, nil, err
	}
	return a, c, end, nil
}

// fill calls write for each of many numbers.
func fill(ctx context.Context, many int, write func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(apiWriters)
	for i := range many {
		g.Go(func() error {
			if err := write(ctx, i); err != nil {
				return fmt.Errorf("object %d: %w", i, errors.Join(err, ctx.Err()))
			}
			return nil
		})
	}
	return g.Wait()
}

// SPDX-License-Identifier: Apache-2.0

//go:build integration && !neutron

package backend

import "time"

// comeAbout bounds the wait for what a backend does a moment after it is asked.
const comeAbout = 30 * time.Second

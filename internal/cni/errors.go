// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/ipam"
)

func newError(code uint, msg, details string) *wire.Error {
	return &wire.Error{CNIVersion: wire.LatestVersion, Code: code, Msg: msg, Details: details}
}

// asCNI gives an error its CNI code. What names the request that failed stays in msg,
// why it failed is in details.
func asCNI(err error, msg string) *wire.Error {
	var cniErr *wire.Error
	if errors.As(err, &cniErr) {
		return cniErr
	}
	return newError(codeOf(err), msg, err.Error())
}

func codeOf(err error) uint {
	var (
		plan      *PlanError
		held      *attachment.TakenError
		netns     *podnet.NetnsError
		taken     *podnet.TakenError
		exhausted *ipam.ExhaustedError
		cidr      *ipam.CIDRError
		write     *attachment.WriteError
	)
	switch {
	case errors.Is(err, errAddresses):
		return wire.CodeAddresses
	case errors.As(err, &plan) && plan.Reason == v1alpha1.ReasonExhausted:
		return wire.CodeExhausted
	case errors.As(err, &plan) && plan.Retry:
		return wire.CodeTryAgainLater
	case errors.As(err, &plan), errors.As(err, &held):
		return wire.CodeRefused
	case errors.As(err, &netns):
		return wire.CodeInvalidNetns
	case errors.As(err, &taken):
		return wire.CodeInvalidEnvironment
	case errors.As(err, &exhausted), errors.Is(err, attachment.ErrNoPort):
		return wire.CodeExhausted
	case errors.As(err, &cidr), errors.Is(err, ipam.ErrNoCIDR):
		return wire.CodeInvalidConfig
	case errors.As(err, &write):
		return wire.CodeIO
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return wire.CodeTryAgainLater
	default:
		return wire.CodeFailed
	}
}

// eventReason is the reason of the Event that tells of an error.
func eventReason(err error) string {
	var plan *PlanError
	var taken *attachment.TakenError
	switch {
	case errors.As(err, &plan):
		return plan.Reason
	case errors.As(err, &taken) && taken.MAC:
		return v1alpha1.ReasonMACTaken
	case errors.As(err, &taken):
		return v1alpha1.ReasonAddressTaken
	default:
		return "NetworkSetupFailed"
	}
}

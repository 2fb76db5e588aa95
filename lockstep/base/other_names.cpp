#include "lockstep/base/other_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace lockstep::inline v0 {
namespace {

constexpr std::string_view kAllReplicas = "the number of samples of a step over all replicas";
constexpr std::string_view kMicroBatches =
    "which divides --global-batch into micro-batches: multiply that for a larger batch";

constexpr std::string_view kSelection =
    "by which the best epoch is selected; lockstep evaluate --data measures on others";

/// If a name has several rows, the first one that fits the place is used.
constexpr OtherName kOtherNames[] = {
    // Options and commands. "mpirun -np" is the number of ranks; "files" and "PATH" are positional
    // arguments.
    {"--accelerator", "--devices", "such as gpu:all or cpu:0"},
    {"--accumulate-grad-batches", "--accumulate", kMicroBatches},
    {"--accumulation-steps", "--accumulate", kMicroBatches},
    {"--amp", "--precision bfloat16"},
    {"--arch", "--model"},
    {"--backend", "--allreduce"},
    {"--batch", "--global-batch"},
    {"--bf16", "--precision bfloat16"},
    {"--bs", "--global-batch"},
    {"--checkpoint", "--checkpoint-dir"},
    {"--checkpoint", "PATH"},
    {"--checkpoint-dir", "--checkpoint"},
    {"--checkpoint-dir", "PATH"},
    {"--ckpt", "--checkpoint-dir"},
    {"--ckpt", "--checkpoint"},
    {"--ckpt-dir", "--checkpoint-dir"},
    {"--ckpt-path", "--checkpoint-dir"},
    {"--ckpt-path", "--checkpoint"},
    {"--cos-lr", "--lr-schedule cosine"},
    {"--criterion", "--loss"},
    {"--data", "files"},
    {"--data", "--input"},
    {"--dataloader-num-workers", "--data-threads"},
    {"--dataset", "--data"},
    {"--decay", "--weight-decay"},
    {"--dropout", "--model NAME:dropout=P"},
    {"--early-stopping", "--early-stop METRIC:patience=N"},
    {"--early-stopping-patience", "--early-stop METRIC:patience=N"},
    {"--eval", "--validation-data"},
    {"--eval-data", "--validation-data"},
    {"--eval-steps", "--validate-every"},
    {"--fp16", "--precision float16"},
    {"--gpu", "--devices"},
    {"--gpus", "--devices"},
    {"--grad-clip", "--clip-norm"},
    {"--gradient-accumulation-steps", "--accumulate", kMicroBatches},
    {"--gradient-clip-val", "--clip-norm"},
    {"--half", "--precision float16"},
    {"--histogram-freq", "--histograms"},
    {"--img-size", "--image-size"},
    {"--imgsz", "--image-size"},
    {"--learning-rate-init", "--learning-rate"},
    {"--log-dir", "--summary-dir"},
    {"--log-every-n-steps", "--log-every"},
    {"--logdir", "--summary-dir"},
    {"--logging-steps", "--log-every"},
    {"--lr-scheduler-type", "--lr-schedule"},
    {"--lr0", "--learning-rate"},
    {"--lrf", "--lr-final", "the same fraction of the rate, with --lr-schedule"},
    {"--max-epochs", "--epochs"},
    {"--max-grad-norm", "--clip-norm"},
    {"--max-new-tokens", "--tokens"},
    {"--max-steps", "--steps"},
    {"--max-tokens", "--tokens"},
    {"--metric-for-best-model", "--keep-best"},
    {"--min-delta", "--early-stop METRIC:min_delta=X"},
    {"--mixed-precision", "--precision bfloat16"},
    {"--model", "--checkpoint"},
    {"--model-dir", "--checkpoint-dir"},
    {"--monitor", "--keep-best"},
    {"--np", "mpirun -np"},
    {"--nproc", "mpirun -np"},
    {"--nproc-per-node", "mpirun -np"},
    {"--nprocs", "mpirun -np"},
    {"--num-classes", "--classes"},
    {"--num-epochs", "--epochs"},
    {"--num-gpus", "--devices"},
    {"--num-steps", "--steps"},
    {"--num-train-epochs", "--epochs"},
    {"--num-workers", "--data-threads"},
    {"--output", "--checkpoint-dir"},
    {"--output-dir", "--checkpoint-dir"},
    {"--output-dir", "--output"},
    {"--patience", "--early-stop METRIC:patience=N"},
    {"--per-device-train-batch-size", "--global-batch", kAllReplicas},
    {"--pretrained", "--init-from"},
    {"--random-seed", "--seed"},
    {"--random-state", "--seed"},
    {"--resume-from", "--checkpoint-dir"},
    {"--resume-from-checkpoint", "--checkpoint-dir"},
    {"--save-dir", "--checkpoint-dir"},
    {"--save-steps", "--save-every"},
    {"--save-total-limit", "--keep"},
    {"--scheduler", "--lr-schedule"},
    {"--silent", "--quiet"},
    {"--tensorboard", "--summary-dir"},
    {"--test-data", "--validation-data", kSelection},
    {"--test-data", "--data"},
    {"--thread", "--data-threads"},
    {"--threads", "--data-threads"},
    {"--train-data", "--data"},
    {"--val-check-interval", "--validate-every", "a number of steps"},
    {"--val-data", "--validation-data"},
    {"--val-split", "--validation-split"},
    {"--validation-data", "--data"},
    {"--warmup", "--warmup-steps", "a number of steps"},
    {"--warmup-epochs", "--warmup-steps", "a number of steps"},
    {"--wd", "--weight-decay"},
    {"--weights", "--init-from"},
    {"--weights", "--checkpoint"},
    {"--workers", "--data-threads"},
    {"--world-size", "mpirun -np"},
    {"-b", "--global-batch", kAllReplicas},
    {"-e", "--epochs"},
    {"-j", "--data-threads"},
    {"-n", "mpirun -np"},
    {"-np", "mpirun -np"},
    {"benchmark", "data benchmark"},
    {"convert", "data convert"},
    {"export", "checkpoint export"},
    {"fit", "train"},
    {"index", "data index"},
    {"inspect", "data inspect"},
    {"list", "inspect"},
    {"show", "inspect"},
    {"test", "evaluate"},
    {"verify", "data verify"},
    // Values: precisions, losses and metrics.
    {"16", "float16"},
    {"16-mixed", "float16"},
    {"32", "float32"},
    {"32-true", "float32"},
    {"acc", "accuracy"},
    {"bceloss", "binary-crossentropy", "of logits, not of probabilities"},
    {"bcewithlogitsloss", "binary-crossentropy"},
    {"bf16-mixed", "bfloat16"},
    {"crossentropyloss", "sparse-categorical-crossentropy"},
    {"half", "float16"},
    {"l1loss", "mean-absolute-error"},
    {"mixed-bfloat16", "bfloat16"},
    {"mixed-float16", "float16"},
    {"mseloss", "mean-squared-error"},
    {"smoothl1loss", "huber"},
    {"val-acc", "validation_accuracy"},
    {"val-accuracy", "validation_accuracy"},
    {"val-loss", "validation_loss"},
};

}  // namespace

std::string OtherName::suggestion() const {
  return fmt::format(" (did you mean {}{}{}?)", name, note.empty() ? "" : ", ", note);
}

std::vector<OtherName> names_here(std::string_view word) {
  std::string folded(word);
  std::ranges::transform(folded, folded.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c == '_' ? '-' : c;
  });
  std::vector<OtherName> found;
  std::ranges::copy_if(kOtherNames, std::back_inserter(found),
                       [&](const OtherName& row) { return row.other == folded; });
  return found;
}

}  // namespace lockstep::inline v0
